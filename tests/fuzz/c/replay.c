/* Instead of libFuzzer: runs the harness on the files that are named, once each. */
#include "fuzz.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file) {
            perror(argv[i]);
            return 2;
        }
        fseek(file, 0, SEEK_END);
        const size_t size = (size_t)ftell(file);
        rewind(file);
        uint8_t *bytes = exactly(size);
        CHECK(fread(bytes, 1, size, file) == size);
        fclose(file);
        fprintf(stderr, "%s\n", argv[i]); /* the last one is the one that fails */
        LLVMFuzzerTestOneInput(bytes, size);
        free(bytes);
    }
    return 0;
}

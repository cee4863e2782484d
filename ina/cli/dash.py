"""``ina dash``: a local web page over what runs and what ran."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import threading
from contextlib import suppress
from pathlib import Path

from ina.base import notices, tokens
from ina.base.bounds import whole
from ina.base.error_text import line
from ina.base.settings import ConfigError

LOOPBACK = "127.0.0.1"


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the command to ``ina``."""
    parser = commands.add_parser("dash", description="Serve a page to watch: the running switch processes of this machine, and "
                                                     "the runs in results folders. It prints the page's address, which has a "
                                                     "token; Ctrl-C ends it.")
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("results")], metavar="FOLDER",
                        help="results folders, or folders of them (default: results)")
    parser.add_argument("--port", type=whole(0, 65535), default=0, metavar="N", help="TCP port (default: 0, any that is free)")
    parser.add_argument("--host", default=LOOPBACK, metavar="ADDRESS",
                        help="address to listen on (default: 127.0.0.1, this machine alone). Any other lets those who see the "
                             "network's traffic read the token: there is no TLS")
    parser.add_argument("--switch", action="append", default=[], metavar="NAME",
                        help="socket of one more switch process: an abstract name, or a path with a '/' (also INA_SWITCH); may "
                             "be repeated")
    parser.add_argument("--token-file", type=Path, metavar="FILE",
                        help="file with the token, which is made, with mode 0600, where there is none; for programs that ask "
                             "for long, such as Prometheus (default: a new token with each start)")
    parser.set_defaults(main=_main)


def _main(args: argparse.Namespace) -> int:
    loading = threading.Timer(1.0, notices.notice, ["dash: the modules of all kinds of experiments are loaded first"])
    loading.daemon = True
    loading.start()
    from ina.dash.server import address, application, listen, names_of, normal
    from ina.dash.views import all_views
    from ina.lab.kind import kinds

    try:
        with suppress(ConfigError):  # of a kind in another package: the view names it where a folder needs it
            kinds()  # imports them all: the first page would wait for that longer than it has patience
    finally:
        loading.cancel()
    switches = [name.removeprefix("@") for name in [*args.switch, os.environ.get("INA_SWITCH", "")] if name]
    try:
        token = tokens.kept_in(args.token_file) if args.token_file else secrets.token_urlsafe(24)
    except tokens.TokenError as error:
        print(f"ina: dash: --token-file: {error}", file=sys.stderr)
        return 1
    try:
        host = normal(args.host)
        server = listen(application(token, all_views(switches, args.folders), names_of(host)), host, args.port)
    except (OSError, ValueError) as error:
        print(f"ina: dash: cannot listen at {args.host or 'no address'}, port {args.port}: {line(error)}", file=sys.stderr)
        return 1
    print(address(host, server.effective_port, token), flush=True)
    server.run()
    return 0

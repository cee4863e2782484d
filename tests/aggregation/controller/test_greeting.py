"""The greeting over TCP, and the codes of lines: what goes over the wire, and what someone there can do with it."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager

import pytest
from control_process import connected, control_process, free_tcp_name
from waiting import LONG

from ina.aggregation.control_socket import greeting
from ina.aggregation.control_socket.channel import address, listen
from ina.aggregation.control_socket.greeting import Callee, Caller, Refused, Seal
from ina.aggregation.controller.client import Client, ControlError
from ina.base import tokens, x25519

TOKEN = "a token that nobody guesses"


def greeted(access=TOKEN, token=TOKEN):
    """Returns the seals of client and server after a greeting."""
    caller = Caller(access)
    callee = Callee(token, caller.hello())
    proof, near = caller.proof(callee.answer())
    proof, far = callee.proof(proof)
    caller.check(proof)
    return near, far


# ---- both ends, without a network


@pytest.mark.fast
@pytest.mark.parametrize("access", [TOKEN, tokens.pass_for(TOKEN, "job"), tokens.pass_for(TOKEN, "x y " + "z" * 251)])
def test_both_ends_have_the_same_keys(access):
    near, far = greeted(access)
    assert near.derive("one") == far.derive("one") != near.derive("other") == far.derive("other")
    for one, other in ((near, far), (far, near)):
        for line in (b"{}", b"", b"with spaces ", b"\xff" * 1000):
            assert other.open(one.close(line)) == line


@pytest.mark.fast
def test_each_connection_has_keys_of_its_own():
    assert len({greeted()[0].derive("one") for _ in range(8)}) == 8


@pytest.mark.fast
@pytest.mark.parametrize(("access", "token"), [
    (TOKEN + "x", TOKEN), (tokens.pass_for("another token", "job"), TOKEN), ("job:job:" + "0" * 64, TOKEN),
    (TOKEN, tokens.pass_for(TOKEN, "job")),
])
def test_other_tokens_prove_nothing(access, token):
    with pytest.raises(Refused, match="the token of this socket is needed"):
        greeted(access, token)


@pytest.mark.fast
def test_a_server_without_the_token_is_none():
    caller = Caller(TOKEN)
    callee = Callee("guessed", caller.hello())
    proof, _ = caller.proof(callee.answer())
    with pytest.raises(Refused):
        callee.proof(proof)
    for forged in (proof, b"", b"0" * 64):  # the client's own proof, too
        with pytest.raises(Refused, match="does not have the token"):
            caller.check(forged)


@pytest.mark.fast
def test_the_public_keys_in_the_middle_cannot_be_changed():
    caller, middle = Caller(TOKEN), x25519.public(x25519.private()).hex().encode()
    callee = Callee(TOKEN, greeting.VERSION + b" " + middle)
    proof, _ = caller.proof(greeting.VERSION + b" " + middle)
    with pytest.raises(Refused):
        callee.proof(proof)


@pytest.mark.fast
def test_a_pass_speaks_for_its_own_job_only():
    caller = Caller(tokens.pass_for(TOKEN, "one"))
    for name in (b"job:another", b""):
        callee = Callee(TOKEN, b" ".join([*caller.hello().split()[:2], *([name] if name else [])]))
        with pytest.raises(Refused):
            callee.proof(caller.proof(callee.answer())[0])
    assert Callee(TOKEN, caller.hello()).job_token == "one"


@pytest.mark.fast
def test_a_first_line_is_one_that_version_1_answers():
    """It took up to 329 bytes, and hung up without a word on more."""
    assert len(Caller(tokens.pass_for(TOKEN, "x" * tokens.MOST)).hello()) == greeting.MOST == 329


@pytest.mark.fast
def test_a_point_of_low_order_is_refused():
    with pytest.raises(Refused, match="low order") as error:
        Callee(TOKEN, greeting.VERSION + b" " + b"00" * 32)
    assert error.value.code == "invalid"


@pytest.mark.fast
def test_lines_are_taken_once_in_order_and_as_they_were():
    near, far = greeted()
    first, second = near.close(b"first"), near.close(b"second")
    flipped = [bytes([*first[:i], first[i] ^ 1 << bit, *first[i + 1:]]) for i in range(len(first)) for bit in range(8)]
    for wrong in (second, b"first", b"", b"first " + first.split()[1][:-1], far.close(b"first"), *flipped):
        with pytest.raises(ValueError, match="has not sent"):
            far.open(wrong)
    assert far.open(first) == b"first"
    with pytest.raises(ValueError, match="has not sent"):
        far.open(first)
    assert far.open(second) == b"second"


@pytest.mark.fast
def test_hidden_bytes_are_found_by_the_other_end():
    near, far = greeted()
    key = bytes(range(32))
    texts = {far.hide(key) for _ in range(8)}
    assert len(texts) == 8 and all(near.find(text) == key and key.hex() not in text for text in texts)
    assert greeted()[0].find(texts.pop()) != key
    assert greeting.found(None, greeting.hidden(None, key)) == key and near.find(far.hide(b"")) == b""
    with pytest.raises(ValueError):
        far.hide(bytes(33))


# ---- on the wire


@contextmanager
def relayed(name, edit=lambda number, line, up: [line]):
    """Yields the name of a relay to the server at ``name``, and what it has carried. ``edit``: returns the lines that follow in
    place of each; their number from 0, in each direction."""
    carried = []

    def pump(source, sink, up):
        number, rest = 0, b""
        while data := _received(source):
            carried.append(data)
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                for each in edit(number, line, up):
                    sink.sendall(each + b"\n")
                number += 1
        for end in (source, sink):
            _shut(end)

    def serve():
        try:
            near = listener.accept()[0]
        except OSError:  # closed: nobody has come
            return
        with near, socket.create_connection(address(name), LONG) as far:
            back = threading.Thread(target=pump, args=(far, near, False))
            back.start()
            pump(near, far, True)
            back.join(LONG)

    with listen("tcp:127.0.0.1:0") as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tcp:127.0.0.1:{listener.getsockname()[1]}", carried
        finally:
            _shut(listener)
            thread.join(LONG)
            assert not thread.is_alive()


def _received(sock):
    try:
        return sock.recv(65536)
    except OSError:
        return b""


def _shut(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:  # it is
        pass


@pytest.fixture(scope="module")
def machine():
    name = free_tcp_name()
    with control_process(name):
        yield name


@pytest.mark.build
def test_neither_token_nor_pass_nor_keys_go_over_the_wire(machine):
    token = tokens.find()
    for access in (token, tokens.pass_for(token, "a job's token")):
        with relayed(machine) as (name, carried):
            client = Client(name, token="a job's token", access=access)
            client.join("wire", 0)
            client.admit("wire", 1, check="keyed")
            reply, _ = client._call("attach", job="wire", worker=0, port="udp@127.0.0.1:9", token="a job's token")
            key = greeting.found(client._channel.seal, reply["key"])
            client.release()
            client.close()
        wire = b"".join(carried)
        assert len(key) == 16 and b'"op":"attach"' in wire and len(wire) > 1000
        assert token.encode() not in wire and access.rpartition(":")[2].encode() not in wire and key.hex().encode() not in wire


@pytest.mark.build
def test_what_was_recorded_opens_nothing(machine):
    with relayed(machine) as (name, carried):
        client = Client(name)
        client.join("recorded", 0)
        client.ping()
        client.close()
    lines = [line for data in carried for line in data.splitlines()]
    sent = [line for line in lines if line.startswith(b"ina2") or b'"op"' in line or len(line) == 64]
    with connected(machine) as sock:
        sock.sendall(b"\n".join([sent[0], sent[2], *sent[3:]]) + b"\n")
        _, reply = _all(sock)
        assert (reply["event"], reply["code"]) == ("refused", "token")
    asking = Client(machine)
    assert "recorded" not in asking.ask("jobs")["jobs"]
    asking.close()


def _all(sock):
    """Returns all lines until the end: the server's greeting, and its refusal."""
    first, *rest = b"".join(iter(lambda: _received(sock), b"")).splitlines()
    return first, *(json.loads(line) for line in rest)


JOIN, PING = 2, 3  # numbers of the client's first requests, and of the answers


@pytest.mark.build
@pytest.mark.parametrize("edit", [
    lambda number, line, up: [line.replace(b"ping", b"stop")] if up and number == PING else [line],
    lambda number, line, up: [line, line] if up and number == PING else [line],
    lambda number, line, up: [b'{"op":"stop"}', line] if up and number == PING else [line],
    lambda number, line, up: [] if up and number == JOIN else [line],
    lambda number, line, up: [line.replace(b'"slots":64', b'"slots":65')] if not up and number == PING else [line],
    lambda number, line, up: [b'{"ok":true}'] if not up and number == PING else [line],
], ids=["changed", "repeated", "inserted", "removed", "changed answer", "another answer"])
def test_lines_that_are_changed_on_their_way_end_the_connection(machine, edit):
    with relayed(machine, edit) as (name, _):
        client = Client(name, timeout=5)
        with pytest.raises(ControlError) as error:
            client.join(f"changed {id(edit)}", 0)
            for _ in range(2):
                client.ping()
        assert error.value.code == "gone"
        client.close()
    asking = Client(machine)
    assert asking.ping()["slots"] == 64, "the switch process goes on"
    asking.close()


@pytest.mark.build
def test_a_server_of_version_1_is_said_to_be_older():
    refusal = {"event": "refused", "code": "token", "reason": "the token of this socket is needed"}
    with _answering(json.dumps(refusal).encode()) as name, pytest.raises(ControlError, match="takes version 1 .* upgrade ina on "
                                                                         "the switch's machine") as error:
        Client(name, access=TOKEN)
    assert error.value.code == "version"


@pytest.mark.build
@pytest.mark.parametrize(("answers", "code", "words"), [
    ([b"SSH-2.0-Something"], "version", "no greeting"),
    ([b"{"], "invalid", "that is none: not JSON"),
    ([b'{"event":"refused","code":"full","reason":"no room\\u001b"}'], "full", r"no room\\x1b"),
    ([b"ina2 " + x25519.public(bytes(32)).hex().encode(), b"0" * 64], "token", "does not have the token"),
    ([], "gone", "it ended the greeting: the other end hung up"),
])
def test_servers_that_answer_the_greeting_otherwise(answers, code, words):
    with _answering(*answers) as name, pytest.raises(ControlError, match=words) as error:
        Client(name, access=TOKEN)
    assert error.value.code == code


@pytest.mark.build
def test_a_server_that_does_not_answer_the_greeting_is_waited_for_a_while_only():
    with listen("tcp:127.0.0.1:0") as listener:
        name = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ControlError, match="time-out while waiting for an answer to the greeting") as error:
            Client(name, timeout=0.2, access=TOKEN)
    assert error.value.code == "timeout"


@contextmanager
def _answering(*answers):
    """Yields the name of a server that answers each line with the next of ``answers``, and then hangs up."""
    def serve():
        with listener.accept()[0] as sock, sock.makefile("rb") as lines:
            for answer in answers:
                lines.readline()
                sock.sendall(answer + b"\n")
            lines.readline()

    with listen("tcp:127.0.0.1:0") as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp:127.0.0.1:{listener.getsockname()[1]}"
        thread.join(LONG)


@pytest.mark.fast
def test_the_numbers_of_lines_are_in_their_codes():
    seal = Seal(bytes(32), server=False)
    assert seal.close(b"{}") != seal.close(b"{}")

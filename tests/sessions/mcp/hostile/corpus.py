"""A generated table of hostile server messages, each with the verdict that it must get.

`ID` is replaced by the id of our open request, `OTHER` by an id that we never used.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Verdict(Enum):
    #: our request gets a result
    RESULT = "result"
    #: our request gets a JSON-RPC error
    ERROR = "error"
    #: our request fails at once: its answer is unreadable but names it
    FAILS = "fails"
    #: an answer that is unreadable and names no request: on a duplex stream the session ends
    UNREADABLE = "unreadable"
    #: no answer to our request, which stays pending
    PENDING = "pending"


@dataclass(frozen=True)
class Case:
    name: str
    data: bytes
    verdict: Verdict


OUR_ID: Final = 1
R, E, F, U, P = Verdict.RESULT, Verdict.ERROR, Verdict.FAILS, Verdict.UNREADABLE, Verdict.PENDING

#: JSON text of a value -> whether JSON and our limits allow it
VALUES: Final = {
    "null": True,
    "true": True,
    "0": True,
    "-0": True,
    "-0.0": True,
    "1e308": True,
    "1e309": False,
    "-1e309": False,
    "1E+400": False,
    "1e-400": True,
    "9" * 4300: True,
    "9" * 4301: False,
    "-" + "9" * 5000: False,
    "0." + "1" * 5000: True,
    "NaN": False,
    "Infinity": False,
    "-Infinity": False,
    "nan": False,
    "01": False,
    "+1": False,
    ".5": False,
    "1.": False,
    "0x10": False,
    "1_000": False,
    "'a'": False,
    "undefined": False,
    '"\\u0000"': True,
    '"\\ud83d\\ude00"': True,
    '"\\ud800"': True,
    '"\\udc00\\ud800"': True,
    '"\\\\ud800"': True,
    '"\\u12"': False,
    '"\\x41"': False,
    '"\\a"': False,
    '"\t"': False,
    '"\0"': False,
    '"\x7f\u0085\u2028\u2029"': True,
    '"\ufeff"': True,
    '"\U0010ffff"': True,
    '"unended': False,
    "[]": True,
    "{}": True,
    "[1,]": False,
    "[,1]": False,
    "[1 2]": False,
    '{"a":1,}': False,
    '{"a" 1}': False,
    "{a:1}": False,
    "{1:1}": False,
    '{"a":1,"a":1}': False,
    '{"a":1,"\\u0061":1}': False,
    '{"\\ud800":1,"\\ud801":1}': False,
    '{"":1}': True,
    '{"__proto__":1,"constructor":2}': True,
    "/*c*/1": False,
    "1//c": False,
    "[" * 61 + "]" * 61: True,
    "[" * 63 + "]" * 63: False,
    "[" * 100_000 + "]" * 100_000: False,
    '{"a":' * 2_000 + "1" + "}" * 2_000: False,
    "[" * 50_000: False,
    '"' + "[{," * 10_000 + '"': True,
}


def every() -> Iterator[Case]:
    yield from _values()
    yield from _ids()
    yield from _shapes()
    yield from _errors()
    yield from _calls()
    yield from _batches()
    yield from _bytes()
    yield from _progress()


def _values() -> Iterator[Case]:
    """Each value in a result, in an error's data, and in a notification; only the first two name our request."""
    for text, legal in VALUES.items():
        data = text.encode("utf-8", "surrogatepass")
        name = f"{text[:20]} of {len(text)}"
        yield Case(f"result {name}", _answer(b'"result":{"a":%b}' % data), R if legal else F)
        error = b'"error":{"code":1,"message":"m","data":%b}' % data
        yield Case(f"error {name}", _answer(error), E if legal else F)
        notification = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":%b}}' % data
        yield Case(f"notification {name}", notification, P)


def _answer(members: bytes, identity: bytes = b"ID") -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,%b}' % (identity, members)


def _ids() -> Iterator[Case]:
    """An id is matched exactly, except that a server may write our number as a string, or as a number of the same value. A
    message with an invalid id is not a message."""
    for identity in (b'"ID"', b"ID.0", b"ID.00"):
        yield Case(f"our id as {identity!r}", _answer(b'"result":{}', identity), R)
        yield Case(f"an unreadable answer to our id as {identity!r}", _answer(b'"result":NaN', identity), F)
    yield Case("our id with an exponent", _answer(b'"result":{}', b"IDe0"), R)
    foreign = (
        b"OTHER",
        b"OTHER.0",
        b"0",
        b"-1",
        b'"0ID"',
        b'" ID"',
        b'"+ID"',
        b'"ID.0"',
        b'"OTHER"',
        b'""',
        b"null",
        b'"' + b"x" * 1024 + b'"',
        b"1" * 38,
    )
    for identity in foreign:
        yield Case(f"foreign id {identity[:12]!r}", _answer(b'"result":{}', identity), P)
    no_ids = (b"true", b"ID.5", b"1e400", b"[1]", b"{}", b'{"id":1}', b"9" * 60, b'"' + b"x" * 2000 + b'"', b"0.5")
    for identity in no_ids:
        yield Case(f"no id {identity[:12]!r}", _answer(b'"result":{}', identity), U)
    yield Case("the id comes last", b'{"result":{},"jsonrpc":"2.0","id":ID}', R)
    yield Case("an unreadable answer whose id comes last", b'{"result":NaN,"jsonrpc":"2.0","id":ID}', F)
    yield Case("no id at all", b'{"jsonrpc":"2.0","result":{}}', P)
    yield Case("two ids", b'{"jsonrpc":"2.0","id":ID,"id":OTHER,"result":{}}', F)


def _shapes() -> Iterator[Case]:
    for result in (b"null", b"[]", b"1", b'"text"', b"true"):
        yield Case(f"the result is {result!r}", _answer(b'"result":%b' % result), F)
    for version in (b'"1.0"', b"2.0", b"2", b"null", b'"2.0 "', b'["2.0"]'):
        yield Case(f"version {version!r}", b'{"jsonrpc":%b,"id":ID,"result":{}}' % version, U)
    yield Case("no version", b'{"id":ID,"result":{}}', F)
    yield Case("result and error", _answer(b'"result":{},"error":{"code":1,"message":"m"}'), F)
    yield Case("result null and error", _answer(b'"result":null,"error":{"code":1,"message":"m"}'), E)
    yield Case("error null and result", _answer(b'"error":null,"result":{}'), R)
    yield Case("neither", _answer(b'"x":1'), F)
    yield Case("unknown members", _answer(b'"result":{},"x":[{}],"params":7'), R)
    for value in (b"", b" ", b"null", b"1", b'"text"', b"{}", b"{", b"}", b"]", b"[", b"{}{}", b"not json"):
        yield Case(f"bare {value!r}", value, P)


def _errors() -> Iterator[Case]:
    for code in (b"-32700", b"0", b"1", b"-32000", b"9" * 30, b"1.0", b"-32e3", b"1e308"):
        yield Case(f"code {code[:8]!r}", _answer(b'"error":{"code":%b,"message":""}' % code), E)
    for code in (b'"1"', b"1.5", b"true", b"null", b"[]"):
        yield Case(f"no code {code!r}", _answer(b'"error":{"code":%b,"message":"m"}' % code), F)
    for error in (b"1", b'"text"', b"[]", b"{}", b"true", b'{"code":1}', b'{"message":"m"}', b'{"code":1,"message":1}'):
        yield Case(f"the error is {error!r}", _answer(b'"error":%b' % error), F)


def _calls() -> Iterator[Case]:
    """Requests and notifications of the server are never an answer, whatever id they have."""
    for method in (b'"ping"', b'"tools/call"', b'"sampling/createMessage"', b'""', b'"' + b"x" * 100_000 + b'"'):
        yield Case(f"request {method[:25]!r}", _answer(b'"method":%b' % method), P)
        yield Case(f"notifying {method[:25]!r}", b'{"jsonrpc":"2.0","method":%b}' % method, P)
    yield Case("request with result", _answer(b'"method":"ping","result":{}'), P)
    for method in (b"7", b"null", b"[]", b"{}", b"true"):
        yield Case(f"method {method!r}", b'{"jsonrpc":"2.0","method":%b}' % method, P)
    for params in (b"[]", b"1", b'"x"', b"true"):
        yield Case(f"params {params!r}", b'{"jsonrpc":"2.0","method":"x","params":%b}' % params, P)
        yield Case(f"params {params!r} of a request", _answer(b'"method":"x","params":%b' % params), P)
        unparsable = b'"method":"x","params":{"result":%b,"error":NaN}' % params
        yield Case(f"unparsable request with {params!r}", _answer(unparsable), P)
    for level in (b"7", b"null", b"[]", b'"' + b"l" * 10_000 + b'"', b'{"a":[]}'):
        params = b'{"level":%b,"logger":%b,"data":%b}' % (level, level, level)
        yield Case(f"log {level[:8]!r}", b'{"jsonrpc":"2.0","method":"notifications/message","params":%b}' % params, P)
    for uri in (b"7", b"null", b"[]", b'"\\u0000"'):
        data = b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%b}}' % uri
        yield Case(f"updated {uri!r}", data, P)
    for identity in (b"ID", b"OTHER", b"true", b"null", b"[]", b"1.5", b"{}"):
        data = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b,"reason":7}}' % identity
        yield Case(f"cancelled {identity!r}", data, P)


def _batches() -> Iterator[Case]:
    """2025-03-26: each element is judged separately; a bad one does not affect the others."""
    good, ping = _answer(b'"result":{}'), b'{"jsonrpc":"2.0","id":7,"method":"ping"}'
    yield Case("empty batch", b"[]", P)
    yield Case("batch of one", b"[%b]" % good, R)
    yield Case("batch with rubbish before", b'[1,null,"x",[],{},%b]' % good, R)
    yield Case("batch with rubbish after", b"[%b,1,{}]" % good, R)
    yield Case("batch of rubbish", b"[1,2,{}]", P)
    yield Case("batch in a batch", b"[[%b]]" % good, P)
    yield Case("the answer twice in a batch", b"[%b,%b]" % (good, good), R)
    yield Case("batch of pings and the answer", b"[%b,%b,%b]" % (ping, ping, good), R)
    yield Case("batch that cannot be parsed", b"[%b,]" % good, U)
    yield Case("a thousand messages", b"[%b]" % b",".join([ping] * 999 + [good]), R)
    yield Case("a thousand and one", b"[%b]" % b",".join([ping] * 1000 + [good]), U)


def _bytes() -> Iterator[Case]:
    good = _answer(b'"result":{}')
    yield Case("byte order mark", b"\xef\xbb\xbf" + good, R)
    yield Case("two byte order marks", b"\xef\xbb\xbf" * 2 + good, U)
    yield Case("white space around", b" \t\r" + good + b" \r", R)
    yield Case("vertical tab before", b"\x0b" + good, F)
    yield Case("NUL before", b"\0" + good, U)
    yield Case("NUL after", good + b"\0", F)
    yield Case("no-break space before", b"\xc2\xa0" + good, U)
    for name, bad in {
        "0xff": b"\xff",
        "lone continuation": b"\x80",
        "overlong": b"\xc0\xaf",
        "surrogate in UTF-8": b"\xed\xa0\x80",
        "beyond Unicode": b"\xf4\x90\x80\x80",
        "cut short": b"\xe2\x82",
    }.items():
        yield Case(f"not UTF-8: {name}", _answer(b'"result":{"a":"%b"}' % bad), F)
    yield Case("UTF-16", good.decode().encode("utf-16"), P)
    yield Case("UTF-32", good.decode().encode("utf-32-le"), P)
    for size in range(1, len(good)):
        yield Case(f"cut after {size}", good[:size], F if size > len(b'{"jsonrpc":"2.0","id":ID') else P)


def _progress() -> Iterator[Case]:
    """Progress never answers a request, and must never crash the client."""
    for token in (b"ID", b'"ID"', b"OTHER", b"true", b"null", b"1.0", b"[]", b"{}"):
        for progress in (b"1", b"-1", b"1e308", b"9" * 400, b"true", b'"1"', b"null", b"{}"):
            params = b'{"progressToken":%b,"progress":%b,"total":%b,"message":%b}' % (token, progress, progress, token)
            data = b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params
            yield Case(f"progress of {token!r}: {progress[:6]!r}", data, P)


def written(case: Case) -> bytes:
    return case.data.replace(b"OTHER", b"999").replace(b"ID", str(OUR_ID).encode())

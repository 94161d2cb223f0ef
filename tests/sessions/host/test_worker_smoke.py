from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import Effects, await_ready, effect_session, ended, ring
from tests.sessions.host.make import make_call
from servers.audit import payloads


def test_x(start_worker: StartWorker, effects: Effects) -> None:
    session = effect_session(effects)
    worker = start_worker()
    try:
        await_ready(session, 8)
        call = make_call(session, text="hello")
        ring(call)
        done = ended(call)
        print(done.state, payloads.read(done.result))
    finally:
        print(worker.output)
    print(worker.stop(), worker.output[-1500:])
    assert 0

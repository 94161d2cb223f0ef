/* One WebSocket that reconnects by itself: ticket, hello, heartbeat, backoff. Knows nothing about topics. */
import { csrfToken } from './dom.js';

const PING_MS = 15_000;
const HASTY_PONG_MS = 5_000;
const HANDSHAKE_MS = 10_000;
const FIRST_MS = 500;
const CEILING_MS = 30_000;
const SIGNED_OUT = 4401;
const MISSES = 2;

class SignedOut extends Error {}

/* states: connecting, live, reconnecting, offline, signed-out */
export class Connection extends EventTarget {
  state = 'connecting';
  latency = null; // ms of the last ping
  retryAt = null; // ms since the epoch, while reconnecting
  reason = '';
  refusal = ''; // why the server closed the last socket, if a limit was exceeded
  #told = ''; // the same, while it is still open
  pipeline = null; // { state, silent, workers, since } of this page's data sources; null until known
  #ticketUrl;
  #socket = null;
  #attempt = 0;
  #timer = 0;
  #handshake = 0;
  #heartbeat = 0;
  #pings = new Map();
  #ref = 0;
  #busy = false;

  constructor(ticketUrl) {
    super();
    this.#ticketUrl = ticketUrl;
  }

  start() {
    addEventListener('online', () => this.#hasten());
    addEventListener('offline', () => this.#hasten());
    addEventListener('pageshow', (event) => event.persisted && this.#hasten());
    document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.#hasten());
    this.#connect();
  }

  /* False without a live socket: messages are never queued. */
  send(message) {
    if (this.state !== 'live') return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  /* Also resets the backoff: a waiting person should not have to wait for the longest delay. */
  retryNow() {
    if (this.state === 'live' || this.state === 'signed-out') return;
    clearTimeout(this.#timer);
    this.#attempt = 0;
    this.#connect();
  }

  /* The user has signed in again. */
  resume() {
    if (this.state !== 'signed-out') return;
    this.#become('connecting');
    this.#connect();
  }

  async #connect() {
    if (this.#busy || this.#socket) return;
    this.#busy = true;
    try {
      this.#open(await this.#ticket());
    } catch (problem) {
      if (problem instanceof SignedOut) this.#become('signed-out');
      else this.#retryLater(problem.message);
    } finally {
      this.#busy = false;
    }
  }

  async #ticket() {
    const response = await fetch(this.#ticketUrl, {
      method: 'POST',
      headers: { 'X-CSRFToken': csrfToken(), Accept: 'application/json' },
      redirect: 'manual', // a redirect leads to the sign-in page
      signal: AbortSignal.timeout(HANDSHAKE_MS),
    });
    if (response.type === 'opaqueredirect' || response.status === 401 || response.status === 403) throw new SignedOut();
    if (!response.ok) throw new Error(`mcpadmin answered with HTTP ${response.status}`);
    return (await response.json()).ticket;
  }

  #open(ticket) {
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(`${scheme}//${location.host}/ws/`);
    this.#socket = socket;
    this.#handshake = setTimeout(() => this.#lose(0, 'no answer'), HANDSHAKE_MS);
    socket.onopen = () => socket.send(JSON.stringify({ op: 'hello', ticket, v: 1 }));
    socket.onmessage = (event) => this.#receive(JSON.parse(event.data));
    socket.onclose = (event) => this.#lose(event.code, event.reason);
  }

  #receive(message) {
    if (message.op === 'welcome') this.#welcomed(message);
    else if (message.op === 'pong') this.#ponged(message.ref);
    else if (message.op === 'pipeline') this.#fed(message);
    else if (message.op === 'refused') this.#told = message.words;
    else this.dispatchEvent(new CustomEvent('message', { detail: message }));
  }

  #welcomed(message) {
    clearTimeout(this.#handshake);
    this.#attempt = 0;
    this.retryAt = null;
    this.refusal = '';
    this.#become('live');
    this.dispatchEvent(new CustomEvent('ready', { detail: message }));
    this.#heartbeat = setInterval(() => this.#beat(), PING_MS);
    this.#ping();
  }

  #fed({ state, silent, workers, age_ms: age }) {
    this.pipeline = { state, silent, workers, since: Date.now() - age };
    this.dispatchEvent(new Event('state'));
  }

  #beat() {
    if (this.#pings.size >= MISSES) this.#lose(0, 'no heartbeat');
    else this.#ping();
  }

  #ping() {
    this.#ref += 1;
    this.#pings.set(this.#ref, performance.now());
    this.send({ op: 'ping', ref: this.#ref });
  }

  #ponged(ref) {
    const sent = this.#pings.get(ref);
    if (sent === undefined) return;
    this.latency = Math.max(1, Math.round(performance.now() - sent));
    this.#pings.clear();
    this.dispatchEvent(new Event('state'));
  }

  /* The close event of a half-open socket may take minutes, so the socket is abandoned at once. */
  #lose(code, reason) {
    const socket = this.#socket;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    if (socket.readyState <= WebSocket.OPEN) socket.close();
    this.#socket = null;
    clearTimeout(this.#handshake);
    clearInterval(this.#heartbeat);
    this.#pings.clear();
    this.latency = null;
    this.pipeline = null;
    if (this.state === 'live') this.dispatchEvent(new Event('lost'));
    if (code === SIGNED_OUT) this.#become('signed-out');
    else this.#retryLater(reason, this.#told);
    this.#told = '';
  }

  #retryLater(reason, refusal = '') {
    const most = Math.min(CEILING_MS, FIRST_MS * 2 ** this.#attempt);
    const delay = FIRST_MS + Math.random() * (most - FIRST_MS);
    this.#attempt += 1;
    this.reason = refusal || reason;
    this.refusal = refusal;
    this.retryAt = Date.now() + delay;
    this.#become(navigator.onLine ? 'reconnecting' : 'offline');
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), delay);
  }

  #hasten() {
    if (this.state === 'live') {
      const socket = this.#socket;
      this.#ping();
      setTimeout(() => socket === this.#socket && this.#pings.size && this.#lose(0, 'no heartbeat'), HASTY_PONG_MS);
    } else if (navigator.onLine) this.retryNow();
  }

  #become(state) {
    this.state = state;
    this.dispatchEvent(new Event('state'));
  }
}

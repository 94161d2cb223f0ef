/* Topics on this tab's socket: subscribes, drops frames that were already seen, passes frames to pages, sends
   requests and awaits their answers. */
import { Connection } from './live-connection.js';

const ANSWER_MS = 15_000;
const LOADED_MS = 5_000; // a topic joined later than this after the page was rendered may have missed something
const ANY = '*';

/* Nothing was sent: the message says why, and the input is kept. */
export class NotSent extends Error {}

const FEEDS = ['audit', 'log', 'wire']; // as in sessions/live/topics.py

function isFeed(topic) {
  return FEEDS.includes(topic.split('.', 1)[0]);
}

function numberOrNull(text) {
  return text === undefined || text === '' ? null : Number(text);
}

class Live extends EventTarget {
  #connection = null;
  /* topic -> { seen: highest seq or null, asked: its value when the connection returned, kinds: Map(kind -> highest
     seq), handlers: Map(kind -> Set), joined: whether it was ever sent, denied: '', 'limit' or 'access' } */
  #topics = new Map();
  #largest = null; // limit for calls of this connection: { bytes, words }
  #build = ''; // version of mcpadmin when this page was loaded
  #isBack = false; // this is not the first connection
  #taken = new WeakMap(); // element -> the topic that it declared when it was scanned
  #answers = new Map(); // ref -> { resolve, reject, timer }
  #ref = 0;

  get state() {
    return this.#connection?.state ?? 'offline';
  }

  get connection() {
    return this.#connection;
  }

  /* Without a ticket address (a page outside the product, a test) it stays offline, and the page works without it. */
  start() {
    const ticketUrl = document.body.dataset.liveTicket;
    this.scan(document.body);
    if (!ticketUrl || this.#connection) return;
    this.#connection = new Connection(ticketUrl);
    this.#connection.addEventListener('state', () => this.dispatchEvent(new Event('state')));
    this.#connection.addEventListener('ready', (event) => this.#ready(event.detail));
    this.#connection.addEventListener('lost', () => this.#lost());
    this.#connection.addEventListener('message', (event) => this.#receive(event.detail));
    this.#connection.start();
  }

  /* After the user has signed in again. */
  resume() {
    this.#connection?.resume();
  }

  /* on('call.<uid>', 'progress' | '*', frame => …) returns a function that ends it. Kind "denied" reports a refused
     topic, which is requested again when it may be allowed. `since`: the page's position, if no element has it. */
  on(topic, kind, handler, since = null) {
    const { handlers } = this.#want(topic, since);
    if (!handlers.has(kind)) handlers.set(kind, new Set());
    handlers.get(kind).add(handler);
    return () => handlers.get(kind).delete(handler);
  }

  /* Resolves with the message that has the same ref (accepted or rejected); rejects when none can arrive any more. */
  request(message) {
    return new Promise((resolve, reject) => {
      this.#ref += 1;
      const ref = this.#ref;
      const isCall = message.op === 'call';
      const whole = { ...message, ...(isCall && { follow: true }), ref }; // a separate request for the topic would cost a round trip
      if (isCall && this.#largest && new Blob([JSON.stringify(whole)]).size > this.#largest.bytes) {
        reject(new NotSent(`${this.#largest.words} Nothing was sent and your input is kept.`)); // otherwise the server would close the connection
        return;
      }
      if (!this.#connection?.send(whole)) {
        reject(new Error('there is no live connection'));
        return;
      }
      const timer = setTimeout(() => this.#settle(ref, null, new Error('no answer in time')), ANSWER_MS);
      this.#answers.set(ref, { resolve, reject, timer });
    });
  }

  /* Joins the topics that elements below `root` declare, and leaves those that are no longer wanted. */
  scan(root) {
    const declared = [...root.querySelectorAll('[data-live-topic]')];
    if (root.matches('[data-live-topic]')) declared.push(root);
    for (const element of declared) this.#take(element);
    this.#prune();
  }

  /* Once per element: its data-live-since is as old as its markup and must not rewind the topic later. */
  #take(element) {
    const { liveTopic, liveSince } = element.dataset;
    if (this.#taken.get(element) === liveTopic) return;
    this.#taken.set(element, liveTopic);
    this.#want(liveTopic, numberOrNull(liveSince));
  }

  #want(topic, since) {
    const known = this.#topics.get(topic);
    if (known && !known.denied && (since === null || (known.seen ?? -1) <= since)) {
      if (since !== null) known.seen = since;
      return known;
    }
    if (known) known.seen = since; // an element older than the last frame: request the frames that it lacks
    const entry = known ?? { seen: since, kinds: new Map(), handlers: new Map() };
    entry.kinds.clear();
    this.#topics.set(topic, entry);
    this.#join([[topic, entry]]);
    return entry;
  }

  #join(entries) {
    for (const [, entry] of entries) entry.denied = '';
    const topics = Object.fromEntries(entries.map(([topic, { seen }]) => [topic, seen]));
    if (entries.length) this.#connection?.send({ op: 'sub', topics });
  }

  #prune() {
    const before = this.#topics.size;
    for (const [topic, { handlers }] of this.#topics) {
      const heard = [...handlers.values()].some((set) => set.size);
      if (heard || document.querySelector(`[data-live-topic="${CSS.escape(topic)}"]`)) continue;
      this.#topics.delete(topic);
      this.#connection?.send({ op: 'unsub', topics: [topic] });
    }
    if (this.#topics.size < before) this.#join([...this.#topics].filter(([, { denied }]) => denied === 'limit')); // there is room again
  }

  #ready({ largest = null, build = '' }) {
    this.#largest = largest;
    if (this.#build && build && build !== this.#build) this.dispatchEvent(new Event('updated'));
    this.#build ||= build;
    if (this.#isBack) for (const entry of this.#topics.values()) entry.asked = entry.seen;
    this.#join([...this.#topics]);
  }

  #lost() {
    this.#isBack = true;
    this.dispatchEvent(new Event('lost'));
    for (const { kinds } of this.#topics.values()) kinds.clear(); // the next socket reports what the database has, in order
    for (const ref of [...this.#answers.keys()]) this.#settle(ref, null, new Error('the connection was lost'));
  }

  #receive(message) {
    if (this.#answers.has(message.ref)) this.#settle(message.ref, message);
    else if (message.op === 'synced') this.#synced(message);
    else if (message.op === 'denied') this.#denied(message);
    else if (message.op === 'permissions') this.#join([...this.#topics].filter(([, { denied }]) => denied));
    else if (message.t) this.#frame(message);
  }

  #settle(ref, message, problem) {
    const answer = this.#answers.get(ref);
    if (!answer) return;
    this.#answers.delete(ref);
    clearTimeout(answer.timer);
    if (message?.followed) this.#followed(message);
    if (problem) answer.reject(problem);
    else answer.resolve(message);
  }

  /* From now on the server sends the changes of this call. */
  #followed({ topic, version }) {
    if (!this.#topics.has(topic)) this.#topics.set(topic, { seen: version, joined: true, kinds: new Map(), handlers: new Map() });
  }

  #synced({ t, seq }) {
    const entry = this.#topics.get(t);
    if (entry) entry.joined = true;
    if (entry && seq !== null && seq !== undefined) {
      const isOlder = isFeed(t) && seq < (entry.asked ?? -1);
      entry.seen = isOlder ? seq : Math.max(entry.seen ?? 0, seq);
      entry.asked = null;
      if (isOlder) this.dispatchEvent(new Event('restored'));
    }
    this.#tell(t, 'synced', { t, seq, kind: 'synced', rows: [] });
  }

  /* What the page followed until now no longer changes: say so. */
  #denied({ t: topic, lacks_permission: lacksPermission, why }) {
    const entry = this.#topics.get(topic);
    if (!entry) return;
    entry.denied = why ? 'limit' : 'access';
    this.#tell(topic, 'denied', { t: topic, seq: null, kind: 'denied', rows: [] });
    if (why || (lacksPermission && entry.joined)) this.dispatchEvent(new CustomEvent('denied', { detail: why }));
  }

  #frame(frame) {
    const entry = this.#topics.get(frame.t);
    if (!entry) return;
    const fresh = isFeed(frame.t) ? this.#newOfFeed(entry, frame) : this.#newOfSnapshot(entry, frame);
    if (!fresh) return;
    if (fresh.html !== undefined) this.#swap(fresh);
    this.#tell(fresh.t, fresh.kind, fresh);
  }

  /* A feed's numbers have no gaps: anything not above the highest seen is a repetition, unless the database was
     replaced by an older one whose numbers come again: then *synced* has a lower number than was requested. */
  #newOfFeed(entry, frame) {
    if (frame.seq === null || frame.seq === undefined) return frame;
    const seen = entry.seen ?? -1;
    if (frame.seq <= seen) return null;
    entry.seen = frame.seq;
    return { ...frame, rows: (frame.rows ?? []).filter((row) => row.seq === undefined || row.seq > seen) };
  }

  /* A snapshot's number is its row's version. */
  #newOfSnapshot(entry, frame) {
    if (frame.seq === null || frame.seq === undefined) return frame;
    if (frame.seq < (entry.kinds.get(frame.kind) ?? -1)) return null;
    entry.kinds.set(frame.kind, frame.seq);
    entry.seen = Math.max(entry.seen ?? 0, frame.seq);
    return frame;
  }

  #swap(frame) {
    for (const target of document.querySelectorAll(`[data-live-target="${CSS.escape(frame.t)}"]`)) {
      const isFocused = target.contains(document.activeElement);
      htmx.swap({ target, text: frame.html, swap: target.dataset.liveSwap ?? 'innerMorph' }).then(() => {
        this.scan(target);
        /* The focused element may be gone, such as the button that cancelled a call. */
        if (isFocused && document.activeElement === document.body) target.querySelector('h2 a')?.focus({ preventScroll: true });
      });
    }
  }

  #tell(topic, kind, frame) {
    const handlers = this.#topics.get(topic)?.handlers;
    for (const handler of [...(handlers?.get(kind) ?? []), ...(handlers?.get(ANY) ?? [])]) handler(frame);
  }
}

export const live = new Live();

/* `act` refreshes what frames report only as it happens: runs after any interruption of the connection. */
export function onReturn(topic, act) {
  live.on(topic, 'synced', () => {
    if (performance.now() > LOADED_MS) act();
  });
}

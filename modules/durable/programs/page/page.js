// SPDX-License-Identifier: Apache-2.0
// Asks hwtd for its counters, queues and dead letters, and shows them. What
// comes from there becomes text and never markup. What was is kept here alone.
'use strict';
const POLL_MS = 1000, PATIENCE_MS = 6000, KEPT = 300;
const WINDOW = 5; // samples that a quantile or a queue's rate is of
// {at, stat, oldest, work, late}; a gap has at and oldest alone. late: of each
// queue that work has, and of ALL, [p50, p99] in ms
const samples = [], ALL = '';
const series = new Map(); // of a queue: its last depths
const cursors = ['']; // of the dead letters' pages up to the one shown
let nextCursor = null, lettersOf = null, lettersAt = 0, down = null;
const at = id => document.getElementById(id);

// Text.

const whole = n => Math.round(n).toLocaleString('en');
const rate = n => n >= 10 || n === 0 ? whole(n) : n.toFixed(1);
function span(ms) {
  if (ms < 1000)
    return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  return s < 10 ? `${s.toFixed(1)} s` : s < 300 ? `${Math.round(s)} s`
    : s < 3600 ? `${Math.floor(s / 60)} min`
    : s < 172800 ? `${Math.floor(s / 3600)} h`
    : `${Math.floor(s / 86400)} days`;
}
const clock = ms => new Date(ms).toLocaleString(undefined,
  {dateStyle: 'short', timeStyle: 'medium'});
const bytesOf = base64 => Uint8Array.from(atob(base64), c => c.charCodeAt(0));
// A member that may be bytes which are no UTF-8.
function textOf(object, name) {
  const bytes = object[name + '_base64'];
  return bytes === undefined ? object[name] ?? ''
    : new TextDecoder().decode(bytesOf(bytes));
}
// An id as a segment of a path, each byte of it.
function segment(object) {
  const bytes = object.id_base64 === undefined
    ? new TextEncoder().encode(object.id) : bytesOf(object.id_base64);
  return [...bytes].map(b => '%' + b.toString(16).padStart(2, '0')).join('');
}

// Elements.

function make(name, text, ...classes) {
  const element = document.createElement(name);
  element.textContent = text;
  element.classList.add(...classes);
  return element;
}
function shape(name, attributes, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes))
    element.setAttribute(key, value);
  if (text !== undefined)
    element.textContent = text;
  return element;
}
function show(id, is) {
  at(id).hidden = !is;
}
function set(element, text) {
  if (element.textContent !== text)
    element.textContent = text;
}
function button(text, label, press) {
  const made = make('button', text);
  made.setAttribute('aria-label', label);
  made.addEventListener('click', async () => {
    made.disabled = true;
    await press();
    made.disabled = false;
  });
  return made;
}
// One row of a table for each key, in that order; those that stay keep their
// elements, and so the focus.
function rows(id, list, keyOf, begin, fill) {
  const body = at(id).tBodies[0], old = new Map();
  for (const row of [...body.rows])
    old.set(row.dataset.key, row);
  let place = body.firstElementChild;
  for (const item of list) {
    const key = keyOf(item);
    let row = old.get(key);
    if (row === undefined) {
      row = begin(item);
      row.dataset.key = key;
    }
    old.delete(key);
    fill(row, item);
    if (row === place)
      place = place.nextElementSibling;
    else
      body.insertBefore(row, place);
  }
  for (const row of old.values())
    row.remove();
  show(id, list.length > 0);
}

// Asking.

class Refused extends Error {
  constructor(status, said) {
    super(said.message ?? `status ${status}`);
    this.status = status;
  }
}
async function ask(method, path) {
  const token = sessionStorage.getItem('token');
  const response = await fetch(path, {method, cache: 'no-store',
    headers: token ? {Authorization: 'Bearer ' + token} : {},
    signal: AbortSignal.timeout(PATIENCE_MS)});
  const said = await response.json();
  if (!response.ok)
    throw new Refused(response.status, said);
  return said;
}
// What a person wants; why it could not be is shown until the next one.
async function act(path) {
  show('problem', false);
  try {
    await ask('POST', path);
  } catch (error) {
    at('problem').textContent = error instanceof Refused ? error.message
      : 'hwtd has not answered: it may have happened or not';
    show('problem', true);
  }
  lettersOf = null;
  await poll();
}

// Pictures.

const LEFT = 46, BOTTOM = 22, TOP = 8;
// The least of 1, 2, 5, 10, 20 ... that is n or more.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 5, 10].find(m => m * power >= n) * power;
}
// Lines through the values that are not null, with gaps for the others.
function path(values, x, y) {
  let d = '', up = true;
  values.forEach((value, i) => {
    if (value !== null)
      d += `${up ? 'M' : 'L'}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    up = value === null;
  });
  return d;
}
// lines: [name, class, values]; least: the axis goes so far
function draw(id, lines, format, least) {
  const svg = at(id), {width, height} = svg.getBoundingClientRect();
  const top = nice(Math.max(...lines.flatMap(([, , v]) => v), least));
  const shown = [60, 120].find(n => samples.length <= n) ?? KEPT;
  const x = i => width - 2 - (samples.length - 1 - i) *
    (width - LEFT - 2) / (shown - 1);
  const y = v => height - BOTTOM - v / top * (height - BOTTOM - TOP);
  const parts = [0, top / 2, top].flatMap(v => [
    shape('path', {class: 'grid', d: `M${LEFT} ${y(v)}H${width}`}),
    shape('text', {x: LEFT - 6, y: y(v) + 4, 'text-anchor': 'end'},
      format(v))]);
  const minutes = Math.round(shown * POLL_MS / 60000);
  parts.push(shape('text', {x: LEFT, y: height - 5}, `${minutes} min ago`),
    shape('text', {x: width - 2, y: height - 5, 'text-anchor': 'end'}, 'now'));
  for (const [, style, values] of lines)
    parts.push(shape('path', {class: 'line ' + style, d: path(values, x, y)}));
  svg.replaceChildren(...parts);
  const said = lines.map(([name, style, values]) => [style,
    `${name} ${values.at(-1) === null ? '-' : format(values.at(-1))}`]);
  svg.setAttribute('aria-label', said.map(([, text]) => text).join(', '));
  at(id + '-legend').replaceChildren(...said.map(([style, text]) =>
    make('span', text, ...style.split(' '))));
}
// A counter's differences a second.
function rates(name) {
  return samples.map(({at: time, stat}, i) => {
    const before = samples[i - 1];
    return !stat || !before?.stat || stat[name] < before.stat[name] ? null
      : (stat[name] - before.stat[name]) / (time - before.at) * 1000;
  });
}
// What workers have done between a sample and WINDOW before it; null: unknown.
// work: of a queue, what hwtd has heard of its workers.
function workSince(i, queue, value) {
  const first = samples[Math.max(i - WINDOW, 0)];
  if (i < 0 || !samples[i].work || !first?.work || first === samples[i])
    return null;
  const now = samples[i].work.get(queue), before = first.work.get(queue);
  const more = now ? value(now) - (before ? value(before) : 0) : 0;
  return more < 0 ? null : more;
}
// Late by so many ms at most was this part of the attempts that began: the
// upper bound of an element of the histogram.
function quantile(counts, part) {
  let left = part * counts.reduce((a, b) => a + b, 0);
  if (left === 0)
    return null;
  const k = counts.findIndex(n => (left -= n) <= 0);
  return 2 ** k * 0.262144;
}
function lateness(i) {
  const late = new Map(), all = Array(27).fill(0);
  const quantiles = counts => [quantile(counts, 0.5), quantile(counts, 0.99)];
  for (const queue of samples[i].work.keys()) {
    const counts = all.map((_, k) =>
      workSince(i, queue, work => work.lateness[k]) ?? 0);
    late.set(queue, quantiles(counts));
    counts.forEach((n, k) => all[k] += n);
  }
  return late.set(ALL, quantiles(all));
}
function doneRate(queue) {
  const i = samples.length - 1;
  const done = workSince(i, queue, work => work.done);
  return done === null ? null : done * 1000 /
    (samples[i].at - samples[Math.max(i - WINDOW, 0)].at);
}
const figures = name => samples.map(({stat}) => stat ? stat[name] : null);
function drawAll() {
  draw('rates', [['added', 'a', rates('added')],
    ['begun', 'c dotted', rates('begun')],
    ['done', 'b dashed', rates('succeeded')],
    ['failed', 'd', rates('failed')]], rate, 2);
  draw('depths', [['waiting', 'a', figures('delivered')],
    ['running', 'b dashed', figures('running')]], whole, 2);
  draw('ages', [['oldest', 'd', samples.map(s => s.oldest)]], span, 10);
  const of = at('late-of').value;
  const late = samples.map(s => s.late?.get(of) ?? [null, null]);
  draw('late', [['p50', 'a', late.map(([p50]) => p50)],
    ['p99', 'd dashed', late.map(([, p99]) => p99)]], span, 10);
}

// What is known.

function showNumbers(stat) {
  const numbers = [['Pending', whole(stat.pending)],
    ['Waiting', whole(stat.delivered)], ['Running', whole(stat.running)],
    ['Dead letters', whole(stat.dead)],
    ['Added a second', rate(rates('added').at(-1) ?? 0)],
    ['Done a second', rate(rates('succeeded').at(-1) ?? 0)],
    ['Behind by', span(stat.lag_ns / 1e6), stat.lag_ns > 1e10]];
  if (stat.quarantined > 0)
    numbers.push(['Quarantined', whole(stat.quarantined), true]);
  if (stat.clock_ahead_ns > 0)
    numbers.push(['Clock set back by', span(stat.clock_ahead_ns / 1e6), true]);
  if (stat.clock_leap_ns > 0)
    numbers.push(['Clock has leapt', span(stat.clock_leap_ns / 1e6), true]);
  at('numbers').replaceChildren(...numbers.map(([name, value, alarm]) => {
    const cell = document.createElement('div');
    cell.append(make('dt', name),
      make('dd', value, ...(alarm ? ['alarm'] : [])));
    return cell;
  }));
}
function beginQueue({queue}) {
  const row = document.createElement('tr');
  const name = make('th', queue);
  name.scope = 'row';
  const picture = document.createElement('td');
  picture.append(shape('svg', {role: 'img'}));
  const action = make('td', '', 'action');
  action.append(button('', '', () => act(`v1/queues/${queue}/${
    row.dataset.paused === 'true' ? 'resume' : 'pause'}`)));
  row.append(name, ...[1, 2, 3].map(() => make('td', '', 'number')),
    make('td', ''), ...[1, 2].map(() => make('td', '', 'number')), picture,
    make('td', ''), action);
  return row;
}
function fillQueue(row, of) {
  const [, depth, oldest, running, limits, done, late, picture, state, action] =
    row.cells;
  set(depth, whole(of.depth));
  set(oldest, of.depth > 0 ? span(of.oldest_age_ms) : '');
  set(running, whole(of.in_flight));
  set(limits, [of.at_once > 0 ? `${whole(of.at_once)} at once` : '',
    of.rate > 0 ? `${of.rate}/s` : ''].filter(text => text).join(', '));
  const doneNow = doneRate(of.queue);
  set(done, doneNow === null ? '' : rate(doneNow));
  const [p50, p99] = samples.at(-1).late.get(of.queue) ?? [null, null];
  set(late, p50 === null ? '' : `${span(p50)} / ${span(p99)}`);
  const depths = series.get(of.queue) ?? [];
  const top = Math.max(...depths, 1);
  picture.firstChild.replaceChildren(shape('path', {class: 'line a',
    d: path(depths, i => 119 - (depths.length - 1 - i) * 2,
      v => 22 - v / top * 20)}));
  picture.firstChild.setAttribute('aria-label', `${top} at most`);
  const part = of.paused_shards > 0 && !of.paused;
  set(state, of.paused ? 'paused' : part
    ? `paused in ${of.paused_shards} of ${of.shards} shards` : 'active');
  state.classList.toggle('paused', of.paused_shards > 0);
  const stands = of.paused_shards > 0;
  row.dataset.paused = String(stands);
  set(action.firstChild, stands ? 'Resume' : 'Pause');
  action.firstChild.setAttribute('aria-label',
    `${stands ? 'Resume' : 'Pause'} queue ${of.queue}`);
}
function showQueues({queues, all_queues: all}) {
  queues.sort((a, b) => a.queue < b.queue ? -1 : 1);
  const there = new Set(queues.map(of => of.queue));
  for (const name of series.keys()) {
    if (!there.has(name))
      series.delete(name);
  }
  for (const of of queues)
    series.set(of.queue,
      [...series.get(of.queue) ?? [], of.depth].slice(-60));
  rows('queues', queues, of => of.queue, beginQueue, fillQueue);
  show('no-queues', queues.length === 0);
  show('more-queues', !all);
}
// The queue whose lateness is drawn: one of which workers have told.
function showChoice({work}) {
  const choice = at('late-of'), chosen = choice.value;
  const names = [...new Set([ALL, chosen, ...work.map(of => of.queue)])].sort();
  if (names.length === choice.length &&
      names.every((name, i) => choice.options[i].value === name))
    return;
  choice.replaceChildren(...names.map(name =>
    new Option(name === ALL ? 'all queues' : name, name)));
  choice.value = chosen;
}

// Dead letters.

// The close event comes later, maybe after the next question: it answers none.
function sure(question) {
  const dialog = at('confirm');
  at('question').textContent = question;
  dialog.showModal();
  return new Promise(resolve => {
    const answer = is => {
      resolve(is);
      dialog.close();
    };
    at('yes').onclick = () => answer(true);
    at('no').onclick = () => answer(false);
    dialog.oncancel = () => resolve(false); // by a key, which closes it
  });
}
async function drop(letter, name) {
  if (await sure(`Drop ${name} for good? It will not be executed.`))
    await act(`v1/dead/${segment(letter)}/drop`);
}
function beginLetter(letter) {
  const row = document.createElement('tr'), name = textOf(letter, 'id');
  const head = make('th', name);
  head.scope = 'row';
  const error = make('td', textOf(letter, 'error'), 'error');
  error.append(make('span', textOf(letter, 'worker'), 'worker'));
  const action = make('td', '', 'action');
  action.append(
    button('Replay', `Replay ${name}`, () =>
      act(`v1/dead/${segment(letter)}/replay`)), ' ',
    button('Drop', `Drop ${name}`, () => drop(letter, name)));
  row.append(head, make('td', letter.queue),
    make('td', clock(letter.failed_ms), 'time'),
    make('td', `${letter.attempts} of ${letter.max_attempts}`, 'number'),
    error, action);
  return row;
}
const letterKey = letter => `${segment(letter)} ${letter.generation} ${
  letter.failed_ms}`;
async function loadLetters() {
  const cursor = cursors.at(-1);
  const {tasks, cursor: next} = await ask('GET',
    'v1/dead' + (cursor && '?cursor=' + encodeURIComponent(cursor)));
  nextCursor = next;
  rows('dead', tasks, letterKey, beginLetter, () => {});
  show('no-dead', tasks.length === 0 && cursors.length === 1);
  show('pages', cursors.length > 1 || next !== null);
  at('first').disabled = cursors.length === 1;
  at('next').disabled = next === null;
  at('page').textContent = `page ${cursors.length}`;
}
async function turn(change) {
  change();
  lettersOf = null;
  await poll();
}
async function showLetters({dead}) {
  set(at('dead-count'), dead > 0 ? `(${whole(dead)})` : '');
  if (dead === lettersOf || lettersOf !== null &&
      Date.now() - lettersAt < 3 * POLL_MS)
    return;
  await loadLetters();
  lettersOf = dead;
  lettersAt = Date.now();
}

// The loop.

function say(state, text) {
  document.body.className = state;
  set(at('state'), text);
}
function lost(text) {
  down ??= Date.now();
  if (samples.length > 0)
    samples.push({at: Date.now(), oldest: null});
  say('lost', `${text} (since ${new Date(down).toLocaleTimeString()})`);
}
async function look() {
  const [stat, queues] =
    await Promise.all([ask('GET', 'v1/stat'), ask('GET', 'v1/queues')]);
  const ages = queues.queues.map(of => of.oldest_age_ms);
  samples.push({at: Date.now(), stat, oldest: Math.max(0, ...ages),
    work: new Map(queues.work.map(work => [work.queue, work]))});
  samples.at(-1).late = lateness(samples.length - 1);
  down = null;
  set(at('space'), `space ${stat.space}`);
  show('login', false);
  show('main', true);
  showNumbers(stat);
  showQueues(queues);
  showChoice(queues);
  await showLetters(stat);
  say('live', 'live');
}
function failed(error) {
  if (!(error instanceof Refused)) {
    lost('hwtd does not answer');
    return;
  }
  if (error.status !== 401) {
    lost(`the engine does not answer: ${error.message}`);
    return;
  }
  say('lost', sessionStorage.getItem('token') ? 'not the right token'
    : 'a token is needed');
  show('login', true);
  show('main', false);
}
let under = null; // the poll under way
function poll() {
  under ??= look().catch(failed).finally(() => {
    under = null;
    samples.splice(0, samples.length - KEPT);
    if (samples.length > 0 && !at('main').hidden)
      drawAll();
  });
  return under;
}
async function go() {
  if (!document.hidden)
    await poll();
  setTimeout(go, POLL_MS);
}
at('login').addEventListener('submit', event => {
  event.preventDefault();
  // Other characters are in no token, and in no header.
  sessionStorage.setItem('token',
    at('token').value.replace(/[^!-~]/g, '?'));
  at('token').value = '';
  poll();
});
at('first').addEventListener('click',
  () => turn(() => cursors.splice(1)));
at('next').addEventListener('click',
  () => turn(() => nextCursor !== null && cursors.push(nextCursor)));
at('late-of').addEventListener('change', drawAll);
document.addEventListener('visibilitychange', () => poll());
go();

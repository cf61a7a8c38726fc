// SPDX-License-Identifier: Apache-2.0
//
// The phases of client.c for a queue in Node: "node bullmq.js life SERVER
// SECONDS" and so on. Such a file gives run() two functions:
//
//   producer(server, name)       {add(tasks), close()}; add tells, as
//                                producer_add of queue.h does, whether all
//                                were acknowledged
//   work(server, name, execute)  executes what is due in the queue of that
//                                name, and returns what ends it
//
// The producer has the main thread, the worker one of its own, as they would
// have processes of their own; both count in memory that they share. What V8
// has not compiled yet is slow: so both pass WARM tasks in a queue of another
// name first (with 20,000 a task costs the same), and then say "begin" and wait
// for a line on standard input, for main.py to read the server's CPU. feed and
// work are without that.
"use strict";
const fs = require("node:fs");
const {setTimeout: sleep} = require("node:timers/promises");
const {Worker, isMainThread, parentPort, workerData} =
	require("node:worker_threads");

const PAYLOAD = 64, TASKS_MAX = 1 << 22, LATE_MAX = 1 << 16;
const BATCH_MAX = 512, AHEAD_MAX = 2048, WARM = 3000;
const QUIET_MS = 3000, LIMIT_MS = 30000; // as in client.c
const EXECUTED = 0, DISTINCT = 1, EARLY = 2, WARMED = 3; // of counts

// Of all threads.
function share() {
	const of = (Kind, length) => new Kind(
		new SharedArrayBuffer(length * Kind.BYTES_PER_ELEMENT));
	return {executions: of(Int8Array, TASKS_MAX),
		late: of(Int32Array, LATE_MAX), counts: of(Int32Array, 4)};
}

function execute({executions, late, counts}, log, payload) {
	const now = Date.now();
	const [id, due] = payload.split(" ", 2);
	if (id.startsWith("w"))
		return void Atomics.add(counts, WARMED, 1);
	const number = Number(id.slice(1));
	if (log !== null)
		fs.writeSync(log, `${number}\n`);
	if (now < due)
		Atomics.add(counts, EARLY, 1);
	Atomics.add(late,
		Math.min(Math.max(now - Number(due), 0), LATE_MAX - 1), 1);
	if (Atomics.add(executions, number, 1) === 0)
		Atomics.add(counts, DISTINCT, 1);
	Atomics.add(counts, EXECUTED, 1);
}

// The worker's thread: takes a name to work for, or null to end, and answers
// when it does.
async function workThread(queue) {
	const {server, shared, path} = workerData;
	const log = path === null ? null : fs.openSync(path, "a");
	let stop = null;
	parentPort.on("message", async (name) => {
		await stop?.();
		stop = name === null ? null : await queue.work(server, name,
			(payload) => execute(shared, log, payload));
		parentPort.postMessage("done");
	});
}

class Load {
	constructor(queue, server) {
		Object.assign(this, {queue, server, shared: share(),
			thread: null, numbers: 0, ackedCount: 0, refused: 0,
			acked: new Int8Array(TASKS_MAX), prefix: "t"});
	}

	count(which) {
		return Atomics.load(this.shared.counts, which);
	}

	async open() {
		this.producer = await this.queue.producer(this.server, "perf");
	}

	make(count, {delay = 0, spread = 0}, prefix) {
		return Array.from({length: count}, () => {
			const number = this.numbers++;
			const due = Date.now() + delay +
				number * 2654435761 % (spread + 1);
			const id = prefix + number;
			return {number, id, due,
				payload: `${id} ${due} `.padEnd(PAYLOAD, ".")};
		});
	}

	// What gets no answer is asked again.
	async add(count, times = {}) {
		const tasks = this.make(count, times, this.prefix);
		while (!await this.producer.add(tasks)) {
			this.refused++;
			await sleep(5);
		}
		for (const {number} of tasks)
			this.acked[number] = 1;
		this.ackedCount += count;
	}

	// Tells the worker's thread, and waits until it has done it.
	async tell(name, path = null) {
		this.thread ??= new Worker(process.argv[1], {workerData:
			{server: this.server, shared: this.shared, path}});
		await new Promise((done, fail) => {
			this.thread.once("error", fail);
			this.thread.once("message", done);
			this.thread.postMessage(name);
		});
	}

	async begin() {
		const warm = await this.queue.producer(this.server, "warm");
		await this.tell("warm");
		for (let i = 0; i < WARM; i += 50)
			await warm.add(this.make(50, {}, "w"));
		while (this.count(WARMED) < WARM)
			await sleep(5);
		await this.tell(null);
		await warm.close();
		this.numbers = 0;
		fs.writeSync(1, "begin\n");
		fs.readSync(0, Buffer.alloc(1));
		this.cpu = process.cpuUsage();
	}

	async produceUntil(until, most, batch, times) {
		while (Date.now() < until() && this.numbers < most)
			await this.add(batch, times);
	}

	// A batch every 10 ms, while it can keep up.
	async pace(rate, milliseconds) {
		const began = performance.now();
		for (let sent = 0; ;) {
			const spent = performance.now() - began;
			if (spent >= milliseconds)
				return;
			const tens = Math.floor(spent / 10);
			const wanted = Math.floor(rate * tens / 100) - sent;
			if (wanted <= 0) {
				await sleep(10 - spent % 10);
				continue;
			}
			const count = Math.min(wanted, BATCH_MAX);
			await this.add(count, {delay: 1000, spread: 2000});
			sent += count;
		}
	}

	// Until all that was acknowledged is executed, if that is enough, or
	// nothing more comes. Returns when the last was.
	async wait(enough) {
		const began = performance.now();
		let last = began, before = 0;
		for (;;) {
			const now = performance.now();
			if (now > Math.min(began + LIMIT_MS, last + QUIET_MS))
				return last;
			if (this.count(EXECUTED) !== before) {
				before = this.count(EXECUTED);
				last = now;
			}
			if (enough && this.count(DISTINCT) >= this.ackedCount)
				return last;
			await sleep(2);
		}
	}

	lateAt(share) {
		const {late} = this.shared;
		let sum = 0;
		for (let ms = 0; ms < LATE_MAX; ms++) {
			sum += late[ms];
			if (sum > 0 && sum >= share * this.count(EXECUTED))
				return ms;
		}
		return LATE_MAX - 1;
	}

	print(seconds) {
		const {user, system} = process.cpuUsage(this.cpu);
		const {executions} = this.shared;
		let lost = 0, doubled = 0, unasked = 0;
		for (let i = 0; i < this.numbers; i++) {
			lost += this.acked[i] !== 0 && executions[i] === 0;
			doubled += executions[i] > 1;
			unasked += this.acked[i] === 0 && executions[i] > 0;
		}
		console.log(JSON.stringify({acknowledged: this.ackedCount,
			seconds, cpu: (user + system) / 1e6,
			executed: this.count(EXECUTED),
			distinct: this.count(DISTINCT), lost, doubled, unasked,
			early: this.count(EARLY), unanswered: this.refused,
			p50: this.lateAt(.5), p99: this.lateAt(.99),
			max: this.lateAt(1)}));
	}
}

// Each returns the time that is its own, in ms.
const phases = {
	async add(load, count, seconds, batch, threads) {
		load.prefix = "a";
		await load.begin();
		const began = performance.now();
		const until = Date.now() + seconds * 1000;
		await Promise.all(Array.from({length: threads}, () =>
			load.produceUntil(() => until, count, batch,
				{delay: 3600000, spread: 3600000})));
		return performance.now() - began;
	},

	async life(load, seconds) {
		await load.begin();
		await load.tell("perf");
		const began = performance.now();
		while (performance.now() < began + seconds * 1000)
			if (load.numbers - load.count(EXECUTED) > AHEAD_MAX)
				await sleep(1);
			else
				await load.add(64);
		return await load.wait(true) - began;
	},

	async late(load, rate, seconds) {
		await load.begin();
		await load.tell("perf");
		await load.pace(rate, seconds * 1000);
		await load.wait(true);
		return seconds * 1000;
	},

	async catchup(load, count, seconds) {
		await load.begin();
		const until = Date.now() + seconds * 1000;
		await load.produceUntil(() => until, count, BATCH_MAX,
			{delay: 1000});
		await sleep(1100);
		const began = performance.now();
		await load.tell("perf");
		return await load.wait(true) - began;
	},

	async crash(load) {
		await load.begin();
		let until = Infinity;
		const producing = load.produceUntil(() => until, TASKS_MAX, 16,
			{delay: 1000});
		await new Promise((ended) =>
			process.stdin.on("end", ended).resume());
		until = 0;
		await producing;
		await sleep(1100);
		const began = performance.now();
		await load.tell("perf");
		return await load.wait(false) - began;
	},

	async feed(load, rate, seconds) {
		await load.pace(rate, seconds * 1000);
		return seconds * 1000;
	},
};

async function run(queue) {
	if (!isMainThread)
		return workThread(queue);
	const [name, server, ...given] = process.argv.slice(2);
	const load = new Load(queue, server);
	await load.open();
	if (name === "work")
		return load.tell("perf", given[0]);
	load.cpu = process.cpuUsage();
	load.print(await phases[name](load, ...given.map(Number)) / 1000);
	process.exit(0);
}

process.on("unhandledRejection", (error) => {
	console.error(error);
	process.exit(1);
});
module.exports = {run};

// SPDX-License-Identifier: Apache-2.0
//
// SERVER is a port of the loopback, a comma, and how many ms a worker that is
// not heard of keeps its tasks. Each task has an id, so that what is asked
// again is stored once.
//
// Who would call it unfair: its users, since its manual advises appendfsync
// everysec, with which a second of what was acknowledged may be lost: the row
// "BullMQ 1s" is that. Else it is at its best for short tasks: addBulk, one
// worker with CONCURRENCY tasks at a time, the client that its own tests use,
// completed tasks removed, no events listened to. It does more than
// hwt_durable: limits of a rate, parents and children, progress, a
// stream of events, which it writes even if nobody listens. It has no call that
// takes or finishes many tasks (the one that is sold has): each is a script
// and, fsynced, a write to the disk.
"use strict";
const {Queue, Worker} = require("bullmq");
const {run} = require("./phases");

const CONCURRENCY = 64;

function connection(server, more) {
	return {host: "127.0.0.1", port: Number(server.split(",")[0]),
		retryStrategy: () => 20, ...more};
}

async function producer(server, name) {
	const queue = new Queue(name, {connection: connection(server,
		{maxRetriesPerRequest: 1, enableOfflineQueue: false})});
	queue.on("error", () => {}); // the server is killed in a phase
	await queue.waitUntilReady();
	return {
		close: () => queue.close(),
		async add(tasks) {
			const timestamp = Date.now();
			const jobs = tasks.map(({id, due, payload}) => ({
				name: "perf", data: payload, opts: {jobId: id,
					timestamp,
					delay: Math.max(due - timestamp, 0)}}));
			const [{name: first, data, opts}] = jobs;
			try {
				if (jobs.length === 1)
					await queue.add(first, data, opts);
				else
					await queue.addBulk(jobs);
			} catch (error) {
				if (error.name === "ReplyError" &&
					!error.message.startsWith("LOADING"))
					throw error;
				return false;
			}
			return true;
		},
	};
}

async function work(server, name, execute) {
	const lease = Number(server.split(",")[1]);
	const worker = new Worker(name, async (job) => execute(job.data), {
		connection: connection(server, {maxRetriesPerRequest: null}),
		concurrency: CONCURRENCY, removeOnComplete: {count: 0},
		lockDuration: lease, stalledInterval: lease,
		maxStalledCount: 100}); // 1 by default: a second kill fails it
	worker.on("error", (error) => console.error(error));
	await worker.waitUntilReady();
	return () => worker.close();
}

run({producer, work});

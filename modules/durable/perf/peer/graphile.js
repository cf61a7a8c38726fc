// SPDX-License-Identifier: Apache-2.0
//
// SERVER is a connection string of libpq, a comma, the name of a schema that is
// made, and another comma and "UNLOGGED" if nothing is to be kept. Each task
// has a key, so that what is asked again is stored once.
//
// Who would call it unfair: its users, since it looks for what is due each 2 s
// unless told otherwise, and LISTEN tells of what is added, not of what is due:
// here it looks each 5 ms, as PostgreSQL with SKIP LOCKED does here. Else it is
// at its best for short tasks, with the settings of the benchmark in its
// manual: addJobs, a local queue of 500, 24 tasks at a time, what is done at
// the same time completed together, no lines in a log. It does more than
// hwt_durable: tasks that stand in line behind each other, flags, and an add
// that is a part of the caller's transaction. What a killed worker held comes
// again after 4 hours, or when somebody calls forceUnlockWorkers.
"use strict";
process.env.NO_LOG_SUCCESS = "1";
const {Logger, makeWorkerUtils, run: start} = require("graphile-worker");
const {Pool} = require("pg");
const {run} = require("./phases");

const CONCURRENCY = 24, POLL_MS = 5;
const quiet = new Logger(() => () => {});

function settings(server) {
	const [connectionString, schema, kind] = server.split(",");
	return {kind, schema, connectionString, preset: {worker: {schema,
		connectionString, logger: quiet, concurrentJobs: CONCURRENCY,
		maxPoolSize: CONCURRENCY + 1, pollInterval: POLL_MS,
		localQueue: {size: 500}, completeJobBatchDelay: 0,
		failJobBatchDelay: 0}}};
}

async function producer(server, name) {
	const {schema, kind, connectionString} = settings(server);
	const pgPool = new Pool({connectionString, max: 16});
	pgPool.on("error", () => {}); // the server is killed in a phase
	const utils = await makeWorkerUtils({pgPool, schema, logger: quiet});
	await utils.migrate();
	if (kind)
		await pgPool.query(
			`ALTER TABLE ${schema}._private_jobs SET ${kind}`);
	return {
		async close() {
			await utils.release();
			await pgPool.end();
		},
		async add(tasks) {
			try {
				await utils.addJobs(tasks.map((task) => ({
					identifier: name, payload: task.payload,
					jobKey: task.id,
					runAt: new Date(task.due)})));
			} catch (error) {
				// 08: the connection; 57: it ends, or starts.
				if (error.severity &&
					!/^(08|57)/.test(error.code))
					throw error;
				return false;
			}
			return true;
		},
	};
}

async function work(server, name, execute) {
	const {preset} = settings(server);
	const runner = await start({preset, noHandleSignals: true,
		parsedCronItems: [],
		taskList: {[name]: async (payload) => execute(payload)}});
	return () => runner.stop();
}

run({producer, work});

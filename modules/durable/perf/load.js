// SPDX-License-Identifier: Apache-2.0
//
// load.js ENGINE ADDRESS [NAME=VALUE ...]: bullmq or graphile, as load.c
// measures the others, with its options adders, batch, workers, limit, seconds,
// count, rate, window and delay, and its last line. One process of Node, as
// both are used from it.
//
// Who would call it unfair: who runs several processes, each of which needs a
// processor of its own. A worker of BullMQ has `limit` jobs at once and removes
// them at once; Graphile fetches 512 jobs at a time where batches are wanted,
// ends them in batches, too, and looks for jobs that are due every 5 ms instead
// of 2,000.
'use strict';

const [engine, address, ...words] = process.argv.slice(2);
const given = {adders: 1, batch: 1, workers: 0, limit: 1, seconds: 0, count: 0,
               rate: 0, window: Infinity, delay: 0};
for (const word of words) {
    const [name, value] = word.split('=');
    if (!(name in given))
        throw new Error(word + ': not known');
    given[name] = Number(value);
}

const late = [], seen = new Set();
const total = {added: 0, executed: 0, again: 0, early: 0};
let numbered = 0, start, lastEnd, addsEnd;

function execute(data) {
    const us = (Date.now() - data.due) * 1000;
    total.executed++;
    total.early += us < 0;
    total.again += seen.has(data.number);
    seen.add(data.number);
    late.push(Math.max(us, 0));
    lastEnd = process.hrtime.bigint();
}

const engines = {
    async bullmq() {
        const {Queue, Worker} = require('bullmq');
        const connection = {port: Number(address), maxRetriesPerRequest: null};
        const open = [];
        const queue = () => {
            open.push(new Queue('perf', {connection}));
            return open.at(-1);
        };
        for (let i = 0; i < given.workers; i++)
            open.push(new Worker('perf', async job => execute(job.data),
                                 {connection, concurrency: given.limit}));
        await Promise.all(open.map(worker => worker.waitUntilReady()));
        return {
            adder() {
                const to = queue();
                return tasks => to.addBulk(tasks.map(data => ({
                    name: 'perf', data, opts: {
                        jobId: 'n' + data.number, removeOnComplete: true,
                        delay: given.delay}})));
            },
            close: () => Promise.all(open.map(each => each.close())),
        };
    },
    async graphile() {
        const {makeWorkerUtils, run, Logger} = require('graphile-worker');
        const common = {connectionString: address, pollInterval: 5,
                        logger: new Logger(() => () => {}),
                        noHandleSignals: true,
                        maxPoolSize: given.adders + given.workers + 2};
        const utils = await makeWorkerUtils(common);
        await utils.migrate();
        const batches = given.limit > 1 && {
            localQueue: {size: 512}, completeJobBatchDelay: 0};
        const runner = given.workers && await run({
            ...common, concurrency: given.workers * given.limit,
            taskList: {perf: async data => execute(data)},
            preset: {worker: {...batches}}});
        return {
            adder: () => tasks => utils.addJobs(tasks.map(data => ({
                identifier: 'perf', payload: data,
                runAt: new Date(data.due)}))),
            async close() {
                await (runner && runner.stop());
                await utils.release();
            },
        };
    },
};

const seconds = since => Number(process.hrtime.bigint() - since) / 1e9;
const over = () => given.count ? numbered >= given.count
                               : seconds(start) >= given.seconds;
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

async function keepAdding(add) {
    while (!over()) {
        const room = Math.min(
            given.batch, (given.count || Infinity) - numbered,
            given.rate ? seconds(start) * given.rate - numbered : Infinity,
            numbered - total.executed + total.again < given.window
                ? Infinity : 0);
        if (room < 1) {
            await pause(1);
            continue;
        }
        const due = Date.now() + given.delay;
        const tasks = Array.from({length: Math.floor(room)}, () => ({
            number: numbered++, due, filler: '.'.repeat(30)}));
        await add(tasks);
        total.added += tasks.length;
        addsEnd = process.hrtime.bigint();
    }
}

async function main() {
    const {adder, close} = await engines[engine]();
    const adders = Array.from({length: given.adders}, adder);
    console.log('ready');
    const cpu = process.cpuUsage();
    start = lastEnd = process.hrtime.bigint();
    await Promise.all(adders.map(keepAdding));
    while (given.workers && seen.size < total.added &&
           seconds(lastEnd) < 30 + given.delay / 1000)
        await pause(5);
    const {user, system} = process.cpuUsage(cpu);
    late.sort((a, b) => a - b);
    const at = share => late[Math.floor(share * (late.length - 1))] || 0;
    console.log(`added ${total.added} executed ${total.executed} ` +
        `add_s ${Number(addsEnd - start) / 1e9} ` +
        `life_s ${Number(lastEnd - start) / 1e9} ` +
        `cpu_s ${(user + system) / 1e6} p50 ${at(0.5)} p99 ${at(0.99)} ` +
        `max ${at(1)} early ${total.early} again ${total.again} ` +
        `lost ${given.workers ? total.added - seen.size : 0}`);
    await close();
    process.exit(0);
}

main();

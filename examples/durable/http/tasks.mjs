// SPDX-License-Identifier: Apache-2.0
//
// node tasks.mjs [URL]: adds a task, looks at it, moves it, and cancels it.
// Node 18 or later; no packages.
const url = process.argv[2] ?? "http://127.0.0.1:8080";

async function ask(method, path, value) {
	const answer = await fetch(url + path, {
		method,
		headers: {"Content-Type": "application/json"},
		body: value && JSON.stringify(value),
		signal: AbortSignal.timeout(10000),
	});
	const said = await answer.json();
	if (!answer.ok)
		throw Object.assign(new Error(`${said.error}: ${said.message}`),
			{status: answer.status});
	return said;
}

// 504, or no answer: it may have happened. 503: it has not. The id is the same,
// so that the task is there once, however often this is sent.
async function put(id, task) {
	for (let pause = 100; ; pause *= 2) {
		try {
			return await ask("PUT",
				`/v1/tasks/${encodeURIComponent(id)}`, task);
		} catch (error) {
			if (![undefined, 503, 504].includes(error.status) ||
				pause > 5000)
				throw error;
		}
		await new Promise((wake) => setTimeout(wake, pause));
	}
}

const id = `order-${process.pid}-close`;
const path = `/v1/tasks/${encodeURIComponent(id)}`;
for (const said of [
	await put(id, {queue: "orders", in: 1800, payload: "close unless paid"}),
	await ask("GET", path),
	await ask("POST", `${path}/reschedule`, {in: 3600}),
	await ask("POST", `${path}/cancel`),
	await ask("GET", "/v1/queues/orders"),
])
	console.log(JSON.stringify(said));

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of Redis as they are: hwtd and hwt.so answer them alike.

Each program adds a task with a binary payload, adds it once more, takes and
finishes it, and sends a wrong command. It prints the answers as JSON.
"""

import json
import os
import subprocess
import unittest

from hosts import Redis, Server, main

PYTHON = r"""
import json, redis, sys
client = redis.Redis(port=int(sys.argv[1]))
call = client.execute_command
add = ('HWT.ADD', '{hwt:q}', 'IN', 0, 'TASKS', 'a', b'\x00\xff\r\n')
said = [call(*add), call(*add)]
tasks = call('HWT.TAKE', '{hwt:q}', 'w', 10, 30000, 'BLOCK', 5000)
said.append([[t[0].decode(), t[2], t[3], t[5].hex()] for t in tasks])
said.append(call('HWT.FINISH', '{hwt:q}', 'DONE', 'TASKS', *tasks[0][:2]))
said.append(call('HWT.TAKE', '{hwt:q}', 'w', 10, 30000))
try:
    call('HWT.ADD', '{hwt:q}', 'IN', -1, 'TASKS', 'b', '')
except redis.ResponseError as error:
    said.append(str(error)[:4])
print(json.dumps(said))
"""

NODE = r"""
const {createClient, commandOptions} = require('redis');
async function run() {
    const client = createClient({url: 'redis://127.0.0.1:' + process.argv[1]});
    await client.connect();
    const call = (...words) => client.sendCommand(words);
    const raw = commandOptions({returnBuffers: true});
    const add = ['HWT.ADD', '{hwt:q}', 'IN', '0', 'TASKS', 'a',
                 Buffer.from([0, 255, 13, 10])];
    const said = [await call(...add), await call(...add)];
    const tasks = await client.sendCommand(
        ['HWT.TAKE', '{hwt:q}', 'w', '10', '30000', 'BLOCK', '5000'], raw);
    said.push(tasks.map(t => [t[0].toString(), t[2], t[3],
                              t[5].toString('hex')]));
    said.push(await call('HWT.FINISH', '{hwt:q}', 'DONE', 'TASKS',
                         tasks[0][0], String(tasks[0][1])));
    said.push(await call('HWT.TAKE', '{hwt:q}', 'w', '10', '30000'));
    await call('HWT.ADD', '{hwt:q}', 'IN', '-1', 'TASKS', 'b', '')
        .catch(error => said.push(error.message.slice(0, 4)));
    console.log(JSON.stringify(said));
    await client.quit();
}
run();
"""


class Clients:
    EXPECTED = [[0], [2], [['a', 1, 20, '00ff0d0a']], [1], None, 'ARG ']

    def setUp(self):
        self.host = self.KIND()
        self.addCleanup(self.host.close)

    def run_program(self, *words):
        return subprocess.run(
            words, stdout=subprocess.PIPE, check=True, timeout=60, text=True,
            env={**os.environ, 'NODE_PATH': '/usr/share/nodejs'}).stdout

    def test_redis_py(self):
        # Debian's python3, which has Debian's python3-redis.
        self.assertEqual(self.EXPECTED, json.loads(self.run_program(
            '/usr/bin/python3', '-c', PYTHON, str(self.host.port))))

    def test_node_redis(self):
        self.assertEqual(self.EXPECTED, json.loads(self.run_program(
            'node', '-e', NODE, str(self.host.port))))

    def test_redis_cli(self):
        def call(*words):
            return self.run_program('redis-cli', '-p', str(self.host.port),
                                    '--json', *words).strip()
        add = 'HWT.ADD', '{hwt:q}', 'IN', '0', 'TASKS', 'a', 'text'
        self.assertEqual(['[0]', '[2]'], [call(*add), call(*add)])
        task, = json.loads(call('HWT.TAKE', '{hwt:q}', 'w', '10', '30000'))
        self.assertEqual(['a', 1, 20, 'text'], [task[0], *task[2:4], task[5]])
        self.assertEqual('[1]', call('HWT.FINISH', '{hwt:q}', 'DONE', 'TASKS',
                                     'a', str(task[1])))
        self.assertIn('ARG ', call('HWT.ADD', '{hwt:q}', 'IN', '-1', 'TASKS',
                                   'b', ''))


class InServer(Clients, unittest.TestCase):
    KIND = Server


class InRedis(Clients, unittest.TestCase):
    KIND = Redis


if __name__ == '__main__':
    main()

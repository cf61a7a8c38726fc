#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- reschedule id mode time

local refused = open() or expect(5)
if refused then
	return refused
end
if not is_id(ARGV[3]) then
	return refuse_argument(1, "id")
end
local due = read_due(ARGV[4], ARGV[5])
if not due then
	return refuse_argument(3, "time")
end
refused = admit("ZREM", "LLEN", "LREM", "ZADD", "SETRANGE")
if refused then
	return refused
end
local id = ARGV[3]
local task, text = load(id)
if text == "" then
	return -2
end
if task and task.state == RUNNING then
	return -115
end
if not task or task.state > RUNNING or task.generation == GENERATION_MAX then
	return -114
end
if task.expires and due > task.expires then
	return -22
end
withdraw(id, task)
renew(task)
place(id, task, due)
save(id, task)
commit()
return 0

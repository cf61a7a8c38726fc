#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- cancel id

local refused = open() or expect(3)
if refused then
	return refused
end
if not is_id(ARGV[3]) then
	return refuse_argument(1, "id")
end
refused = admit("ZREM", "LLEN", "LREM", "SET")
if refused then
	return refused
end
local id = ARGV[3]
local task, text = load(id)
if text == "" then
	return -2
end
if task and task.state == CANCELLED then
	return 0
end
if task and task.state == RUNNING then
	return -115
end
if not task or task.state > RUNNING then
	return -114
end
withdraw(id, task)
conclude(id, task, CANCELLED)
commit()
return 0

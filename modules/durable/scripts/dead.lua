#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- dead drop|replay id: what has failed, or is in quarantine; from there, only
-- what can be read by now is replayed. What has expired is replayed as a task
-- that does not expire.

local refused = open() or expect(4)
if refused then
	return refused
end
if ARGV[3] ~= "drop" and ARGV[3] ~= "replay" then
	return refuse_argument(1, "drop or replay")
end
if not is_id(ARGV[4]) then
	return refuse_argument(2, "id")
end
refused = admit("LREM", "SETRANGE", "UNLINK", "ZADD", "ZREM")
if refused then
	return refused
end
local id = ARGV[4]
local task = load(id)
local set
if task and task.state == FAILED then
	set = prefix .. ":dead"
elseif sure("ZSCORE", prefix .. ":bad", id) then
	set = prefix .. ":bad"
else
	return -2
end
if ARGV[3] == "replay" then
	if not task or not is_name(task.queue) or
		task.generation == GENERATION_MAX then
		return -2
	end
	renew(task)
	if is_expired(task) then
		task.expires = nil
		set_options(task)
		call("SETRANGE", record_key(id), 0, head(task))
	end
	place(id, task, now)
	save(id, task)
else
	if task and task.has_entry then
		remove_entries(task.queue, id)
	end
	call("UNLINK", record_key(id))
	count("dropped", 1)
end
call("UNLINK", error_key(id))
sure("ZREM", set, id)
commit()
return 0

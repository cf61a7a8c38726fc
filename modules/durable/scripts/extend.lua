#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- extend visibility, then id fence for each.

local PER_TASK = 2
local OK, STALE = 0, 1

local function check(at)
	return not is_id(ARGV[at]) and "id" or
		not whole(ARGV[at + 1], 1, WHOLE_MAX) and "fence" or nil
end

local leases = {} -- ends and ids

local function extend(at, visibility)
	local task = load(ARGV[at])
	if not task or task.state ~= RUNNING or
		task.fence ~= tonumber(ARGV[at + 1]) then
		return STALE
	end
	leases[#leases + 1] = now + visibility
	leases[#leases + 1] = ARGV[at]
	return OK
end

local refused = open()
if refused then
	return refused
end
local visibility = #ARGV > 2 and whole(ARGV[3], 1, DAY)
if not visibility then
	return refuse_argument(0, "visibility")
end
local total = (#ARGV - 3) / PER_TASK
if total ~= floor(total) or total > BATCH_MAX then
	return refuse_argument(0, "the number of arguments")
end
for i = 1, total do
	local wrong = check(4 + (i - 1) * PER_TASK)
	if wrong then
		return refuse_argument(i, wrong)
	end
end
refused = admit("GETRANGE", "ZADD")
if refused then
	return refused
end
local results = {}
for i = 1, total do
	results[i] = extend(4 + (i - 1) * PER_TASK, visibility)
end
if leases[1] then
	sure("ZADD", inflight_key(), unpack(leases))
	commit()
end
return results

#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- notify, then queue shards for each: one of the workers that wait for the
-- queue is notified of the shards that have something for it: numbers with a
-- space between, or "*" for all. It waits with BLPOP. If nobody waits, the hint
-- stays for who comes; it is no loss if it goes: see DESIGN.

local function check(at)
	local shards = ARGV[at + 1]
	return not is_name(ARGV[at]) and "queue" or
		shards ~= "*" and (#shards > 512 or
			not find(shards, "^[0-9 ]*[0-9]$")) and "shards" or nil
end

local function notify(at)
	local queue, shards = ARGV[at], ARGV[at + 1]
	if is_foreign(push_hint(queue, shards)) then
		set_aside(hints_key(queue))
		push_hint(queue, shards)
	end
end

if #KEYS ~= 1 or not find(KEYS[1], "^{.+}:hosts$") then
	return refuse_argument(0, "the key is not {SPACE}:hosts")
end
prefix, space = match(KEYS[1], "^({(.+)}):hosts$")
local total = (#ARGV - 2) / 2
if total ~= floor(total) or total < 1 or total > BATCH_MAX then
	return refuse_argument(0, "the number of arguments")
end
for i = 1, total do
	local wrong = check(1 + 2 * i)
	if wrong then
		return refuse_argument(i, wrong)
	end
end
real = read_clock()
local refused = check_clocks() or
	check_rights({"RENAME", "RPUSH", "LTRIM", "PEXPIRE"})
if refused then
	return refused
end
for i = 1, total do
	notify(1 + 2 * i)
end
return total

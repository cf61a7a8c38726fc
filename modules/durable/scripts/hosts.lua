#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- hosts name lease: who schedules. What is heard of in the future, by a clock
-- that was set back, is not kept for longer than any other.

if #KEYS ~= 1 or not find(KEYS[1], "^{.+}:hosts$") then
	return refuse_argument(0, "the key is not {SPACE}:hosts")
end
prefix = match(KEYS[1], "^(.*):hosts$")
local refused = expect(4)
if refused then
	return refused
end
local name = ARGV[3]
local lease = whole(ARGV[4], 1, DAY)
if name ~= "" and not is_name(name) then
	return refuse_argument(1, "name")
end
if not lease then
	return refuse_argument(2, "lease")
end
real = read_clock()
refused = check_clocks() or
	check_rights({"RENAME", "ZREMRANGEBYSCORE", "ZADD", "ZRANGE"})
if refused then
	return refused
end
sure("ZREMRANGEBYSCORE", KEYS[1], "-inf", real - lease)
call("ZREMRANGEBYSCORE", KEYS[1], real + lease, "+inf")
if name ~= "" then
	call("ZADD", KEYS[1], real, name)
end
local names = call("ZRANGE", KEYS[1], 0, -1)
table.sort(names)
return names

#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- resume

local refused = open(true) or expect(2)
if refused then
	return refused
end
refused = check_clocks()
if refused then
	return refused
end
if paused ~= 0 then
	-- From base: a pause of more than a minute is a leap that is doubted.
	call("HSET", KEYS[1], "clock", now, "paused", 0, "resumed", base)
	try("PUBLISH", space .. ":due", shard)
end
return 0

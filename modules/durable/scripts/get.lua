#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- get id

local refused = open() or expect(3)
if refused then
	return refused
end
if not is_id(ARGV[3]) then
	return refuse_argument(1, "id")
end
refused = check_clocks()
if refused then
	return refused
end
return show(ARGV[3], true)

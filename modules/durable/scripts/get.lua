#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- get id. Of a record that cannot be read: one in quarantine, without queue. Of
-- a pending one that is in its queue: delivered.

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
local task, text = load(ARGV[3], true)
if text == "" then
	return false
end
if task and state_of(ARGV[3], task) == DELIVERED then
	return sub(text, 1, 1) .. string.char(DELIVERED) .. sub(text, 3)
end
return text or struct.pack(LAYOUT, FORMAT, QUARANTINED, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0)

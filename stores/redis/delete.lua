-- Deletes a log, and with that of a session its parts.
--
-- KEYS: the parts of the session, all sessions, those of the project, those of the id.
-- ARGV: the prefix of keys, the name of the session, that of the part ("" for none).
-- The keys of the logs are made here: they begin with the prefix, as the others do.

local function drop(log)
	redis.call('DEL', ARGV[1] .. ':log:' .. log, ARGV[1] .. ':uuids:' .. log, ARGV[1] .. ':head:' .. log)
end
if ARGV[3] ~= '' then
	drop(ARGV[2] .. '/' .. ARGV[3])
	redis.call('SREM', KEYS[1], ARGV[3])
	return 'ok'
end
for _, part in ipairs(redis.call('SMEMBERS', KEYS[1])) do
	drop(ARGV[2] .. '/' .. part)
end
drop(ARGV[2])
redis.call('DEL', KEYS[1])
for i = 2, 4 do
	redis.call('SREM', KEYS[i], ARGV[2])
end
return 'ok'

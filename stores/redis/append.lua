-- Appends records to a log.
--
-- KEYS: the lease, the head of the log, its records, its uuids, the clock, the parts of
-- the session, all sessions, those of the project, those of the id.
-- ARGV: the token of the lease ("" for none), the version of the log that the records
-- are for ("" for none yet), the bytes to add to its size, its summary, the name of the
-- part ("" for the session itself), the name of the session, a name for this append, by
-- which it is known when it comes twice, then a uuid ("" for none) and a record, again
-- and again.
--
-- Says "lost" if another one has the lease, "again" if the log has changed, else "ok".

if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
	return 'lost'
end
if redis.call('HGET', KEYS[2], 'append') == ARGV[7] then
	return 'ok'
end
if (redis.call('HGET', KEYS[2], 'version') or '') ~= ARGV[2] then
	return 'again'
end
if #ARGV == 7 then
	return 'ok'
end
for i = 8, #ARGV, 2 do
	if ARGV[i] ~= '' then
		redis.call('SADD', KEYS[4], ARGV[i])
	end
	redis.call('RPUSH', KEYS[3], ARGV[i + 1])
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local last = tonumber(redis.call('HGET', KEYS[2], 'modified') or '0')
if now <= last then
	now = last + 1
end
redis.call('HSET', KEYS[2], 'version', redis.call('INCR', KEYS[5]), 'modified', string.format('%.0f', now), 'summary', ARGV[4], 'append', ARGV[7])
redis.call('HINCRBY', KEYS[2], 'size', ARGV[3])
if ARGV[5] == '' then
	redis.call('SADD', KEYS[7], ARGV[6])
	redis.call('SADD', KEYS[8], ARGV[6])
	redis.call('SADD', KEYS[9], ARGV[6])
else
	redis.call('SADD', KEYS[6], ARGV[5])
end
return 'ok'

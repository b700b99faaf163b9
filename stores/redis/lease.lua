-- Takes, keeps or drops the lease of a session.
--
-- KEYS: the lease. ARGV: "take", "keep" or "drop", a token, for how many milliseconds.
-- The key has no end of its own, so that a holder that was silent, but whom nobody has
-- followed, is still known. Says "ok", or "no" if another one has it.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local is = redis.call('HMGET', KEYS[1], 'token', 'expires')
if is[1] ~= ARGV[2] and (ARGV[1] ~= 'take' or is[1] and tonumber(is[2]) > now) then
	return 'no'
end
if ARGV[1] == 'drop' then
	redis.call('DEL', KEYS[1])
else
	redis.call('HSET', KEYS[1], 'token', ARGV[2], 'expires', string.format('%.0f', now + tonumber(ARGV[3])))
end
return 'ok'

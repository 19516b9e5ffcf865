-- Shows a new generation of a consumer group to everybody. KEYS: the group's hash, its hash slot's zset of groups by the end of their first session, the
-- group's positions. ARGV: generation, group, state, then of each member its ID, its session, what a heartbeat prolongs it by, and 1 when the
-- session begins now; one that is not known begins now as well.
if redis.replicate_commands then redis.replicate_commands() end
local H, fmt = KEYS[1], string.format
local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
local g = redis.call('HGET', H, 'g')
if g and tonumber(g) > tonumber(ARGV[1]) then return 'ST' end
local had, first = {}, nil
for i = 4, #ARGV, 4 do
  local v = redis.call('HGET', H, 'm:' .. ARGV[i])
  if v then had[i] = tonumber(string.match(v, '^(%d+) ')) end
end
redis.call('DEL', H, KEYS[3])
redis.call('HSET', H, 'g', ARGV[1], 'b', ARGV[3])
for i = 4, #ARGV, 4 do
  local ends = had[i]
  if not ends or ARGV[i + 3] == '1' then ends = now + tonumber(ARGV[i + 1]) end
  redis.call('HSET', H, 'm:' .. ARGV[i], fmt('%d %d', ends, tonumber(ARGV[i + 2])))
  if not first or ends < first then first = ends end
end
if first then redis.call('ZADD', KEYS[2], fmt('%d', first), ARGV[2]) else redis.call('ZREM', KEYS[2], ARGV[2]) end
return fmt('OK %d', now)

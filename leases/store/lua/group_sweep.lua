-- Consumer groups of one hash slot in which a session has lapsed. KEYS[1] is the zset of groups by a time before which none of their sessions ends; ARGV[1]
-- what the groups' hashes are named before the group's number, ARGV[2] after it. A group that is named here is named again after a second, if it is
-- still so.
if redis.replicate_commands then redis.replicate_commands() end
local fmt = string.format
local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
local out = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt('%d', now), 'LIMIT', 0, 1000)) do
  local all, first = redis.call('HGETALL', ARGV[1] .. id .. ARGV[2]), nil
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'm:' then
      local ends = tonumber(string.match(all[i + 1], '^(%d+) '))
      if not first or ends < first then first = ends end
    end
  end
  if not first then
    redis.call('ZREM', KEYS[1], id)
  else
    if first <= now then
      out[#out + 1] = id
      first = now + 1000
    end
    redis.call('ZADD', KEYS[1], fmt('%d', first), id)
  end
end
return table.concat(out, ' ')

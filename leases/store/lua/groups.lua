-- Subscriptions of the groups in KEYS: each is a group's zset. ARGV[1] says how long ago they are due, dirty or were last touched, in ms.
local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
local out = {}
for i = 1, #KEYS do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[i], '-inf', now - tonumber(ARGV[1]), 'LIMIT', 0, 10000)) do out[#out + 1] = id end
end
return table.concat(out, ' ')

-- Every session of a consumer group. KEYS[1] is its hash. Answers a line of words, then of each member its ID and the end of its session.
local fmt = string.format
local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])
local out, g = {''}, nil
for i = 1, #all, 2 do
  if all[i] == 'g' then
    g = all[i + 1]
  elseif string.sub(all[i], 1, 2) == 'm:' then
    out[#out + 1] = string.sub(all[i], 3)
    out[#out + 1] = string.match(all[i + 1], '^(%d+) ')
  end
end
if g then out[1] = fmt('OK %d %s', now, g) else out = {fmt('NL %d', now)} end
return out

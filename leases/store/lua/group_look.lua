-- A consumer group's generation and the sessions of some members. KEYS[1] is the group's hash: g the generation, b its state, "m:<member>" the end of
-- a session and what a heartbeat prolongs it by (0: not at all), both in ms.
-- ARGV: the generation that the caller has the state of, 1 = this is a heartbeat, members. Answers a line of words, and the state if it is another.
if redis.replicate_commands then redis.replicate_commands() end
local H, fmt = KEYS[1], string.format
local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
local g, b = redis.call('HGET', H, 'g'), ''
if g and ARGV[1] ~= g then b = redis.call('HGET', H, 'b') end
if not g or not b then return {fmt('NL %d', now), ''} end
local out = {'OK', fmt('%d', now), g}
for i = 3, #ARGV do
  local field, ends = 'm:' .. ARGV[i], 0
  local v = redis.call('HGET', H, field)
  if v then
    local e, t = string.match(v, '^(%d+) (%d+)$')
    e, t = tonumber(e), tonumber(t)
    if e > now then -- a session that has lapsed is over, whether or not somebody has seen it
      ends = e
      if ARGV[2] == '1' and t > 0 then
        ends = now + t
        redis.call('HSET', H, field, fmt('%d %d', ends, t))
      end
    end
  end
  out[#out + 1] = fmt('%d', ends)
end
return {table.concat(out, ' '), b}

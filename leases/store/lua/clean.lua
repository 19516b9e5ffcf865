-- Takes the marks of journalled states away where nothing has changed since. ARGV from 5: partition, incarnation, sequence; three each.
if m.ready ~= '1' then return 'NL' end
for i = 5, #ARGV, 3 do
  local s = shard(ARGV[i])
  if s and s.inc == tonumber(ARGV[i + 1]) then
    call('ZREMRANGEBYSCORE', B .. 'J:' .. s.p, '-inf', ARGV[i + 2])
    if s.seq == tonumber(ARGV[i + 2]) and s.dirty == '1' then
      s.dirty, s.changed = '0', true
      call('ZREM', B .. 'S', s.p)
    end
  end
end
local oldest = call('ZRANGE', B .. 'S', 0, 0, 'WITHSCORES')
if oldest[1] then
  if m.dirty == '1' then call('ZADD', G .. 'dirty', oldest[2], ID) end
else
  m.dirty, m.changed = '0', true
  call('ZREM', G .. 'dirty', ID)
end
forget()
return finish()

-- Statistics of every loaded shard.
if m.ready ~= '1' then return 'NL' end
local raw, out = call('HGETALL', H), {}
for i = 1, #raw, 2 do
  if match(raw[i], '^%d+$') then
    local s = parseShard(raw[i], raw[i + 1])
    local oldest, delayed = -1, -1
    if s.i - s.ia + s.owed - s.owedA + s.wait - s.waitA > 0 then
      local b = call('ZRANGE', B .. 'B:' .. s.p, 0, 0)[1]
      if b then oldest = tonumber(b) end
    end
    if s.c > s.f and (oldest < 0 or s.f < oldest) then oldest = s.f end
    if s.dl > 0 then delayed = tonumber(call('ZRANGE', B .. 'Y:' .. s.p, 0, 0)[1] or -1) end
    out[#out + 1] = fmt('%s %d %d %d %d %d %d %d %d %d %d %d', s.p, s.f, s.c, s.i, s.ahead, s.owed, s.dl, s.wait, s.dead, s.skipped, oldest, delayed)
  end
end
return fmt('OK %d %s', #out, table.concat(out, ' '))

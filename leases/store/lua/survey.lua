-- What is there of a subscription, loaded or not.
local raw, out = call('HGETALL', H), {}
for i = 1, #raw, 2 do
  if match(raw[i], '^%d+$') then
    local s = parseShard(raw[i], raw[i + 1])
    out[#out + 1] = fmt('%s %d %d', s.p, s.inc, s.seq)
  end
end
return fmt('OK %d %s', #out, table.concat(out, ' '))

-- New records of a keyed queue become deliverable, or wait for their key. ARGV from 5: partition, cursor, through, n, then n times offset, key
-- hash, deliverAt.
if m.ready ~= '1' then return 'NL' end
local s = shard(ARGV[5])
if not s then return 'AB 1 ' .. ARGV[5] end
local cursor, through, n = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
wakeUp()
local moved = 0
local function known(o)
  if s.pre == 0 then return false end
  local e = call('ZREVRANGEBYSCORE', B .. 'A:' .. s.p, o, '-inf', 'LIMIT', 0, 1)[1]
  return e and tonumber(e) > o or call('HEXISTS', B .. 'P:' .. s.p, pad(o)) == 1
end
if s.c == cursor and cursor < through then
  local i, o = 0, cursor
  while o < through and s.dl < 100000 do
    if o - s.f >= MAA then
      s.c = o
      settleDone(s) -- what was passed so far may have moved the frontier
      if o - s.f >= MAA then break end
    end
    local at = 9 + 3 * i
    if known(o) then
      s.pre = s.pre - 1
      if i < n and tonumber(ARGV[at]) == o then i = i + 1 end
    elseif i < n and tonumber(ARGV[at]) == o then
      local id, kh, due = pad(o), ARGV[at + 1], tonumber(ARGV[at + 2])
      i = i + 1
      if due > now and (not ordered or kh == '0' or call('HEXISTS', B .. 'K:' .. s.p, kh) == 0) then
        local x = newPointer(SCHEDULED)
        x.due, x.det, x.kh = due, true, kh
        settleOne(s, id)
        putPointer(s, id, x)
        enqueue(s, id, kh, due, x)
      else
        enqueue(s, id, kh, now, nil)
      end
    else
      s.skipped = s.skipped + 1
      settleOne(s, pad(o))
    end
    o = o + 1
  end
  s.c, s.changed = o, true
  if o > cursor then moved = 1 end
end
return finish() .. ' ' .. moved

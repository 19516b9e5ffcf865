-- The common lease: not keyed, nothing owed, nothing lapsed, no gap. Everything else falls through to acquire.lua, before anything is written.
-- ARGV: flags, maxAttempts, maxInFlight, maxAckedAhead, max, visibility, nonce, n, then n times partition, logStart, head.
local nf = tonumber(ARGV[8])
local fields = {'m'}
for i = 1, nf do fields[i + 1] = ARGV[6 + 3 * i] end
local vals = call('HMGET', H, unpack(fields))
local ready, wake, owing, touch = match(vals[1] or '', '^(%d) (%d+) (%d+) (%d+)')
if ready ~= '1' then return 'NL' end
wake = tonumber(wake)
local fast = owing == '0' and (wake == 0 or wake > now) and not string.find(ARGV[1], '[of]')
if fast then
  local want, mif, maa, nonce = tonumber(ARGV[5]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[7]
  local expires = now + tonumber(ARGV[6])
  local hset, xadd, blocks, grants, pos, absent = {}, {}, {}, {}, {}, {}
  local ng, na = 0, 0
  for i = 1, nf do
    local v, at = vals[i + 1], 6 + 3 * i
    local p = ARGV[at]
    if not v then
      na = na + 1
      absent[na] = p
    elseif want == 0 then
      if tonumber(match(v, '^%d+')) < tonumber(ARGV[at + 1]) then fast = false break end
    else
      local f, c, fl, fla, pre, dl, ah, seq, d, bl, rest = match(v, HOT)
      if not f or tonumber(f) < tonumber(ARGV[at + 1]) or pre ~= '0' or tonumber(dl) >= 100000 then fast = false break end
      local cursor, inflight = tonumber(c), tonumber(fl)
      local n = maa - (cursor - tonumber(f))
      if mif - inflight < n then n = mif - inflight end
      local room = n
      local left = tonumber(ARGV[at + 2]) - cursor
      if left < n then n = left end
      if want < n then n = want end
      if n > 0 then
        want = want - n
        ng = ng + 1
        local name = nonce
        if ng > 1 then name = nonce .. '.' .. ng end
        grants[ng] = fmt('%s %s %d 1 %s %d', p, c, n, name, expires)
        xadd[2 * ng - 1], xadd[2 * ng] = expires, p .. ':' .. name
        blocks[ng] = {B .. 'L:' .. p, name, fmt('1|%s,%d,%d,L', c, n, expires)}
        c = fmt('%d', cursor + n)
        hset[2 * ng - 1] = p
        hset[2 * ng] = fmt('%s %s %d %d 0 %s %s %s %s %d %s', f, c, inflight + n, fla + n, dl, ah, seq, d, bl + 1, rest)
        room = room - n
      end
      pos[#pos + 1] = fmt('%s %s %s %d', p, f, c, room)
    end
  end
  if fast then
    touch = tonumber(touch)
    if ng > 0 then
      for i = 1, ng do call('HSET', blocks[i][1], blocks[i][2], blocks[i][3]) end
      call('ZADD', B .. 'X', unpack(xadd))
      local id
      if wake == 0 or expires < wake or now - touch > 10000 then
        id = match(H, ':(%d+):H$')
        local tail = match(vals[1], '^%d %d+ %d+ %d+ (.*)$')
        if wake == 0 or expires < wake then
          wake = expires
          call('ZADD', G .. 'due', wake, id)
        end
        if now - touch > 10000 then
          touch = now
          call('ZADD', G .. 'subs', now, id)
        end
        hset[2 * ng + 1], hset[2 * ng + 2] = 'm', fmt('1 %d 0 %d %s', wake, touch, tail)
      end
      call('HSET', H, unpack(hset))
    end
    return fmt('OK %d %d 0 0 0 0 0 %d %s %d %s %d %s 0', now, wake == 0 and -1 or wake - now,
      ng, table.concat(grants, ' '), #pos, table.concat(pos, ' '), na, table.concat(absent, ' '))
  end
end

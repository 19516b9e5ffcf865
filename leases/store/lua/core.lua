-- The model of a subscription while a script runs: shards are read when first touched, pieces are written at once, and finish() writes the
-- shards, the marks and the next due time.
local find, sub, rep, gmatch = string.find, string.sub, string.rep, string.gmatch
local FLAGS, MA, MIF, MAA = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local ordered, fair = find(FLAGS, 'o', 1, true) ~= nil, find(FLAGS, 'f', 1, true) ~= nil
local keyed, copydead = ordered or fair, find(FLAGS, 'c', 1, true) ~= nil
local ID = match(H, ':(%d+):H$')
local RETRY, DEAD, SCHEDULED = '1', '2', '3'
local freed, lapsed, died, copies = 0, 0, 0, 0

-- m is the subscription's own record: ready, wake (the next lapse or due time, 0 = none), owing (partitions with something due in OP), touch,
-- dirty, tick (of fair deliveries), last (when due records were last announced).
local m = {}
do
  local r, w, ow, tc, d, tk, ls = match(call('HGET', H, 'm') or '0 0 0 0 0 0 0', '^(%d) (%d+) (%d+) (%d+) (%d) (%d+) (%d+)$')
  m.ready, m.wake, m.owing, m.touch, m.dirty, m.tick, m.last = r, tonumber(w), tonumber(ow), tonumber(tc), d, tonumber(tk), tonumber(ls)
  m.was = m.wake
end

local function event(t)
  if m.wake == 0 or t < m.wake then m.wake, m.changed = t, true end
end

-- Record IDs are padded, so that the order of strings is the order of offsets.
local function pad(o) return fmt('%016d', o) end

local S, touched = {}, {}

-- A counter below zero is a fault, and the audit's to put right; it must not stop the queue.
local function parseShard(p, v)
  local f, c, i, ia, pre, dl, ah, sq, d, bl, inc, ow, owa, w, wa, dd, ca, sk = match(v,
    '^(%d+) (%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%d+) (%d) (%-?%d+) (%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%d+)$')
  return {p = p, f = tonumber(f), c = tonumber(c), i = tonumber(i), ia = tonumber(ia), pre = tonumber(pre), dl = tonumber(dl),
    ahead = tonumber(ah), seq = tonumber(sq), dirty = d, blocks = tonumber(bl), inc = tonumber(inc), owed = tonumber(ow),
    owedA = tonumber(owa), wait = tonumber(w), waitA = tonumber(wa), dead = tonumber(dd), copyA = tonumber(ca), skipped = tonumber(sk)}
end

local function packShard(s)
  return fmt('%d %d %d %d %d %d %d %d %s %d %d %d %d %d %d %d %d %d', s.f, s.c, s.i, s.ia, s.pre, s.dl, s.ahead, s.seq, s.dirty, s.blocks,
    s.inc, s.owed, s.owedA, s.wait, s.waitA, s.dead, s.copyA, s.skipped)
end

-- false: not loaded
local function shard(p)
  local s = S[p]
  if s ~= nil then return s end
  local v = call('HGET', H, p)
  s = v and parseShard(p, v) or false
  S[p] = s
  if s then
    s.full = s.i >= MIF or s.c - s.f >= MAA
    touched[#touched + 1] = s
  end
  return s
end

-- A durable change: one sequence number a script and shard.
local function durable(s)
  if not s.durable then
    s.durable, s.changed = true, true
    s.seq = s.seq + 1
  end
end

-- An attached offset keeps the frontier; a detached one (redriven, scheduled, dead) counts as settled and lives by its pointer alone.
local function attached(s, o, det) return not det and tonumber(o) >= s.f end

local function settleOne(s, o)
  durable(s)
  local d = s.done
  if not d then
    d = {}
    s.done = d
  end
  o = tonumber(o)
  local last = d[#d]
  if last and last[2] == o then
    last[2] = o + 1
  else
    d[#d + 1] = {o, o + 1}
  end
end

-- Pointers: kind attempts firstFailed lastFailed due detached copyPending copied expired sequence incarnation keyHash reason
local function parsePointer(v)
  local k, a, ff, lf, du, dt, cp, cd, ex, sq, inc, kh, rs = match(v,
    '^(%d) (%d+) (%d+) (%d+) (%d+) (%d) (%d) (%d) (%d) (%d+) (%d+) (%S+) (%S+)$')
  return {kind = k, att = tonumber(a), first = tonumber(ff), last = tonumber(lf), due = tonumber(du), det = dt == '1', copy = cp == '1',
    copied = cd == '1', expired = ex == '1', seq = sq, inc = inc, kh = kh, reason = rs}
end

local function pointer(s, o)
  local v = call('HGET', B .. 'P:' .. s.p, o)
  return v and parsePointer(v) or nil
end

local function flag(x) return x and '1' or '0' end

local function putPointer(s, o, x)
  durable(s)
  call('HSET', B .. 'P:' .. s.p, o, fmt('%s %d %d %d %d %s %s %s %s %d %d %s %s', x.kind, x.att, x.first, x.last, x.due, flag(x.det), flag(x.copy),
    flag(x.copied), flag(x.expired), s.seq, s.inc, x.kh, x.reason))
  call('ZADD', B .. 'J:' .. s.p, s.seq, o)
end

local function removePointer(s, o)
  if call('HDEL', B .. 'P:' .. s.p, o) == 1 then
    durable(s)
    call('ZADD', B .. 'J:' .. s.p, s.seq, o)
  end
end

local function newPointer(kind) return {kind = kind, att = 0, first = 0, last = 0, due = 0, det = false, copy = false, copied = false,
  expired = false, kh = '0', reason = '='} end

-- Owed: in O:<p> until it is due and taken. x is its pointer, nil for a record that was merely given back.
local function owe(s, o, due, x)
  call('ZADD', B .. 'O:' .. s.p, due, o)
  s.oweChanged, s.changed = true, true
  if x and x.kind == SCHEDULED then
    s.dl = s.dl + 1
    call('ZADD', B .. 'Y:' .. s.p, o, o)
  else
    s.owed = s.owed + 1
    if attached(s, o, x and x.det) then
      s.owedA = s.owedA + 1
    else
      call('ZADD', B .. 'B:' .. s.p, o, o)
    end
  end
  if due <= now then freed = freed + 1 else event(due) end
end

local function unowe(s, o, x)
  if call('ZREM', B .. 'O:' .. s.p, o) == 0 then return false end
  s.oweChanged, s.changed = true, true
  if x and x.kind == SCHEDULED then
    s.dl = s.dl - 1
    call('ZREM', B .. 'Y:' .. s.p, o)
  else
    s.owed = s.owed - 1
    if attached(s, o, x and x.det) then
      s.owedA = s.owedA - 1
    else
      call('ZREM', B .. 'B:' .. s.p, o)
    end
  end
  return true
end

-- Waiting: behind its key in W:<p> (ordered), or for its turn in FW:<p>:<key> (fair). n is 1 or -1.
local function countWaiting(s, o, x, n)
  s.changed = true
  s.wait = s.wait + n
  if attached(s, o, x and x.det) then
    s.waitA = s.waitA + n
  elseif n > 0 then
    call('ZADD', B .. 'B:' .. s.p, o, o)
  else
    call('ZREM', B .. 'B:' .. s.p, o)
  end
end

-- Fair: FQ scores the keys that have waiting records by what they have in flight, then by how long ago they were served.
local TURN = 1e9

local function fairAdd(s, o, kh, x)
  local pair = s.p .. ':' .. kh
  call('ZADD', B .. 'FW:' .. pair, x and x.due or now, o)
  call('ZADD', B .. 'FQ', 'NX', tonumber(call('HGET', B .. 'F', pair) or 0) * TURN + m.tick, pair)
  countWaiting(s, o, x, 1)
  freed = freed + 1
end

local function fairCount(s, kh, n)
  local pair = s.p .. ':' .. kh
  local c = call('HINCRBY', B .. 'F', pair, n)
  if c <= 0 then
    call('HDEL', B .. 'F', pair)
    c = 0
  end
  local score = call('ZSCORE', B .. 'FQ', pair)
  if score then call('ZADD', B .. 'FQ', c * TURN + tonumber(score) % TURN, pair) end
end

-- The key hash of a record that is neither settled nor dead. The last answer is kept: most are asked for twice in a row.
local askedOf, askedFor, answer
local function keyOf(s, o)
  if not keyed then return nil end
  if askedOf ~= s or askedFor ~= o then askedOf, askedFor, answer = s, o, call('HGET', B .. 'KO:' .. s.p, o) or nil end
  return answer
end

-- A record that was deliverable before is so again at due; its key stays locked.
local function again(s, o, due, x)
  if fair and due <= now then
    fairAdd(s, o, keyOf(s, o) or '0', x)
  else
    owe(s, o, due, x)
  end
end

-- A record becomes deliverable at due, or waits for its key.
local function enqueue(s, o, kh, due, x)
  askedOf = nil
  if fair then
    call('HSET', B .. 'KO:' .. s.p, o, kh)
    if due <= now then return fairAdd(s, o, kh, x) end
  elseif ordered and kh ~= '0' then
    call('HSET', B .. 'KO:' .. s.p, o, kh)
    if call('HSETNX', B .. 'K:' .. s.p, kh, o) == 0 and not NOLOCK then
      call('ZADD', B .. 'W:' .. s.p, 0, kh .. ':' .. o)
      return countWaiting(s, o, x, 1)
    end
  end
  owe(s, o, due, x)
end

-- The record is settled or dead: its key's lowest waiting record takes the lock.
local function unlock(s, o)
  local kh = keyOf(s, o)
  if not kh then return end
  askedOf = nil
  call('HDEL', B .. 'KO:' .. s.p, o)
  if not ordered then return end
  local locks = B .. 'K:' .. s.p
  if call('HGET', locks, kh) ~= o then return end
  local w = call('ZRANGEBYLEX', B .. 'W:' .. s.p, '[' .. kh .. ':', '(' .. kh .. ';', 'LIMIT', 0, 1)[1]
  if not w then
    call('HDEL', locks, kh)
    return
  end
  call('ZREM', B .. 'W:' .. s.p, w)
  local following = sub(w, -16)
  call('HSET', locks, kh, following)
  local x = pointer(s, following)
  countWaiting(s, following, x, -1)
  owe(s, following, math.max(now, x and x.due or 0), x)
end

-- Blocks: "attempt|begin,count,expiry,states|..." in L:<p> by nonce. States: L live and attached, M live and detached, A settled by this lease,
-- N lost; one letter for all records of the extent or one each. X has the earliest expiry of a live one.
local function parseBlock(v)
  local b = {attempt = tonumber(match(v, '^%d+')), live = find(v, '[LM]') ~= nil}
  for s, n, e, st in gmatch(v, '|(%d+),(%d+),(%d+),(%a+)') do
    n = tonumber(n)
    if #st == 1 and n > 1 then st = rep(st, n) end
    b[#b + 1] = {s = tonumber(s), n = n, e = tonumber(e), st = st}
  end
  return b
end

local function saveBlock(s, nonce, b)
  local out, least = {tostring(b.attempt)}, nil
  local i = 1
  while i <= #b do
    local x = b[i]
    local from, n, st = x.s, x.n, x.st
    while b[i + 1] and b[i + 1].e == x.e do
      i = i + 1
      n, st = n + b[i].n, st .. b[i].st
    end
    if find(st, '[LM]') and (not least or x.e < least) then least = x.e end
    local c = sub(st, 1, 1)
    if not find(st, '[^' .. c .. ']') then st = c end
    out[#out + 1] = fmt('%d,%d,%d,%s', from, n, x.e, st)
    i = i + 1
  end
  call('HSET', B .. 'L:' .. s.p, nonce, table.concat(out, '|'))
  call('ZADD', B .. 'X', least or now - FINISHED, s.p .. ':' .. nonce)
  if least then
    event(least)
  elseif b.live then
    b.live = false
    s.blocks, s.changed = s.blocks - 1, true
  end
end

-- A lease ends: whether the record was attached.
local function leave(s, o, state)
  s.changed = true
  s.i = s.i - 1
  if fair then fairCount(s, keyOf(s, o) or '0', -1) end
  if state == 'L' and tonumber(o) >= s.f then
    s.ia = s.ia - 1
    return true
  end
  call('ZREM', B .. 'B:' .. s.p, o)
  return false
end

-- The record becomes a dead letter; with a copy to be made it stays unsettled until that is committed.
local function die(s, o, x, att)
  died = died + 1
  x.kind, x.last, x.due = DEAD, now, 0
  x.kh = keyOf(s, o) or x.kh
  s.dead, s.changed = s.dead + 1, true
  call('ZADD', B .. 'D', now, s.p .. ':' .. o)
  x.det = not att
  if copydead then
    x.copy, copies = true, 1
    call('ZADD', B .. 'C', now, s.p .. ':' .. o)
    if att then s.copyA = s.copyA + 1 end
  elseif att then
    x.det = true
    settleOne(s, o)
  end
  putPointer(s, o, x)
  unlock(s, o)
end

-- A delivery failed: back to the queue at due, or dead.
local function fail(s, o, state, attempt, due, reason)
  local att = leave(s, o, state)
  local x = pointer(s, o) or newPointer(RETRY)
  if not att then x.det = true end
  if x.first == 0 then x.first = now end
  x.att, x.last, x.reason = attempt, now, reason
  if attempt >= MA then return die(s, o, x, att) end
  x.kind, x.due = RETRY, due
  if keyed then x.kh = keyOf(s, o) or '0' end
  putPointer(s, o, x)
  again(s, o, due, x)
end

local LAPSED = '=bGFwc2Vk' -- "lapsed" as reasons are kept: "=" and base64

local function lapseBlock(s, nonce, b)
  local n = 0
  for i = 1, #b do
    local x = b[i]
    if x.e <= now and find(x.st, '[LM]') then
      for k = 1, x.n do
        local state = sub(x.st, k, k)
        if state == 'L' or state == 'M' then
          n = n + 1
          fail(s, pad(x.s + k - 1), state, b.attempt, now, LAPSED)
        end
      end
      x.st = string.gsub(x.st, '[LM]', 'N')
    end
  end
  lapsed = lapsed + n
  saveBlock(s, nonce, b)
  return n
end

-- What has lapsed goes back, and what became due is announced. Bounded: what is left over is due at once.
local awake = false
local function wakeUp()
  if m.wake == 0 or m.wake > now then return end
  awake = true
  local budget = 1000
  for _, member in ipairs(call('ZRANGEBYSCORE', B .. 'X', 0, now, 'LIMIT', 0, 1000)) do
    local p, nonce = match(member, '^(%d+):(.+)$')
    local s = shard(p)
    local v = s and call('HGET', B .. 'L:' .. p, nonce)
    if v then
      budget = budget - lapseBlock(s, nonce, parseBlock(v))
      if budget <= 0 then break end
    else
      call('ZREM', B .. 'X', member)
    end
  end
  for _, p in ipairs(call('ZRANGEBYSCORE', B .. 'OP', '-inf', now, 'LIMIT', 0, 1000)) do
    freed = freed + call('ZCOUNT', B .. 'O:' .. p, '(' .. fmt('%d', m.last), now)
  end
  m.last, m.changed = now, true
end

-- When the next lease lapses or the next owed record becomes due, by what is stored. What is due already has been announced.
local function nextEvent()
  local least
  local function try(t)
    t = tonumber(t)
    if t and (not least or t < least) then least = t end
  end
  try(call('ZRANGEBYSCORE', B .. 'X', 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  try(call('ZRANGEBYSCORE', B .. 'OP', '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  local heads = call('ZRANGEBYSCORE', B .. 'OP', '-inf', now, 'LIMIT', 0, 100)
  for _, p in ipairs(heads) do try(call('ZRANGEBYSCORE', B .. 'O:' .. p, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) end
  if #heads == 100 then try(now + 1000) end
  return least or 0
end

-- OP has the earliest due time of each partition's owed records.
local headsChanged = false
local function saveHeads()
  for _, s in ipairs(touched) do
    if s.oweChanged then
      s.oweChanged, headsChanged = false, true
      local head = call('ZRANGE', B .. 'O:' .. s.p, 0, 0, 'WITHSCORES')
      if head[1] then
        call('ZADD', B .. 'OP', head[2], s.p)
      else
        call('ZREM', B .. 'OP', s.p)
      end
    end
  end
end

local function saveMeta()
  call('HSET', H, 'm', fmt('%s %d %d %d %s %d %d', m.ready, m.wake, m.owing, m.touch, m.dirty, m.tick, m.last))
end

-- Writes what is still in memory; answers the effects.
local function finish()
  local dirty = {}
  for _, s in ipairs(touched) do
    settleDone(s)
    if s.full then
      local room = math.min(MIF - s.i, MAA - (s.c - s.f))
      if room > 0 then freed = freed + room end
    end
    if s.durable then
      dirty[#dirty + 1] = s.p
      if s.dirty == '0' then
        s.dirty = '1'
        call('ZADD', B .. 'S', now, s.p)
      end
      if m.dirty == '0' then
        m.dirty, m.changed = '1', true
        call('ZADD', G .. 'dirty', now, ID)
      end
    end
    if s.changed then call('HSET', H, s.p, packShard(s)) end
  end
  saveHeads()
  if headsChanged or awake then
    local n = call('ZCOUNT', B .. 'OP', '-inf', now)
    if n ~= m.owing then m.owing, m.changed = n, true end
  end
  if awake then m.wake, m.changed = nextEvent(), true end
  if now - m.touch > 10000 then
    m.touch, m.changed = now, true
    call('ZADD', G .. 'subs', now, ID)
  end
  if m.changed then saveMeta() end
  if m.wake ~= m.was then
    if m.wake == 0 then
      call('ZREM', G .. 'due', ID)
    else
      call('ZADD', G .. 'due', m.wake, ID)
    end
  end
  local wait = -1
  if m.wake ~= 0 then wait = math.max(0, m.wake - now) end
  return fmt('OK %d %d %d %d %d %d %d %s', now, wait, freed, lapsed, died, copies, #dirty, table.concat(dirty, ' '))
end

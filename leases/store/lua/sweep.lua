-- Finds what has lapsed or became due, and forgets finished blocks after ten minutes or when there are many. ARGV: flags and caps.
if m.ready ~= '1' then return 'NL' end
wakeUp()
forget()
return finish()

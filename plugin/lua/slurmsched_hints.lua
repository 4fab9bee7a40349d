-- The grammar of hints (docs/hints.md) for Slurm's Lua plug-ins: understands a comment as slurmsched itself does.
-- For Lua 5.1 to 5.4. The keys lie in slurmsched_keys.lua, which is written from slurmsched's own table.

-- MOST_BYTES: of a comment, as Slurm takes it from sbatch; it calls job_submit.lua before it looks at the length.
-- MOST_FAULTS: told of one comment, since slurmctld copies the whole message at every line that is added to it.
local M = { MARK = "slurmsched:", MOST_BYTES = 1024, MOST_FAULTS = 3 }

local MOST_CHARACTERS = 300
local LONGEST_S = 100 * 365 * 86400
local UNITS_S = { s = 1, m = 60, h = 3600, d = 86400, w = 604800 }
local FORMS = "30s, 90m, 2h, 1d12h, 1.5h or Slurm's 1-02:03:04, 02:00:00, 30:00"
local SIGNALS = {
    HUP = 1, INT = 2, QUIT = 3, ILL = 4, TRAP = 5, ABRT = 6, BUS = 7, FPE = 8, KILL = 9, USR1 = 10, SEGV = 11,
    USR2 = 12, PIPE = 13, ALRM = 14, TERM = 15, STKFLT = 16, CHLD = 17, CONT = 18, STOP = 19, TSTP = 20, TTIN = 21,
    TTOU = 22, URG = 23, XCPU = 24, XFSZ = 25, VTALRM = 26, PROF = 27, WINCH = 28, IO = 29, PWR = 30, SYS = 31,
    RTMIN = 34, RTMAX = 64,
}
local ALIASES = { IOT = "ABRT", CLD = "CHLD", POLL = "IO" }

-- A value's text -> the text to write for it, or nil and what is wrong with it.
local function duration_s(text)
    local low, total, at = text:lower(), 0, 1
    while at <= #low do
        local number, unit, after = low:match("^(%d+%.?%d*)([smhdw])()", at)
        if not number or number:sub(-1) == "." then total = nil break end
        total, at = total + tonumber(number) * UNITS_S[unit], after
    end
    if low == "" then total = nil end
    if not total then
        local d, clock = text:match("^(%d+)%-([%d:]+)$")
        local h, m, s
        if d then
            h, m, s = clock:match("^(%d+):(%d+):(%d+)$")
            if not h then h, m = clock:match("^(%d+):(%d+)$") end
            if not h then h = clock:match("^(%d+)$") end
        else
            h, m, s = text:match("^(%d+):(%d+):(%d+)$")
            if not h then m, s = text:match("^(%d+):(%d+)$") end
        end
        if h or m then
            total = (tonumber(d) or 0) * 86400.0 + (tonumber(h) or 0) * 3600.0 + (tonumber(m) or 0) * 60.0
                + (tonumber(s) or 0)
        end
    end
    if not total then
        local unit = text:match("^[%d.]+$") and " with a unit" or ""
        return nil, "is no duration" .. unit .. ": write " .. FORMS
    end
    if total <= 0 or total > LONGEST_S then return nil, "is no duration above zero and under 100 years" end
    return total
end

local function days_of(year, month)
    if month == 2 then return (year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)) and 29 or 28 end
    return (month == 4 or month == 6 or month == 9 or month == 11) and 30 or 31
end

local function iso(text)
    local y, mo, d, rest = text:match("^(%d%d%d%d)%-(%d%d)%-(%d%d)(.*)$")
    if not y then return false end
    y, mo, d = tonumber(y), tonumber(mo), tonumber(d)
    if y < 1970 or mo < 1 or mo > 12 or d < 1 or d > days_of(y, mo) then return false end
    if rest == "" then return true end
    local h, mi, tail = rest:match("^T(%d%d):(%d%d)(.*)$")
    if not h or tonumber(h) > 23 or tonumber(mi) > 59 then return false end
    local s, zone = tail:match("^:(%d%d)(.*)$")
    if s and tonumber(s) > 59 then return false end
    zone = s and zone or tail
    if zone == "" or zone == "Z" then return true end
    local zh, zm = zone:match("^[+-](%d%d):(%d%d)$")
    return zh ~= nil and tonumber(zh) < 24 and tonumber(zm) < 60
end

local function signal_name(text)
    local name = text
    if text:match("^%d+$") then
        name = nil
        for known, number in pairs(SIGNALS) do
            if number == tonumber(text) then name = known end
        end
    else
        name = text:gsub("^SIG", "")
        name = ALIASES[name] or name
    end
    if not name or not SIGNALS[name] then return nil, "names no signal" end
    if name == "KILL" or name == "STOP" then return nil, "names a signal that no program can catch" end
    return name
end

local function same(check) -- the text itself is what to write
    return function(text)
        local value, wrong = check(text)
        if value == nil then return nil, wrong end
        return text, nil, value
    end
end

local function count(text)
    if not text:match("^%d+$") or #text > 7 or tonumber(text) == 0 then return nil, "is no whole number above zero" end
    return tonumber(text)
end

local PARSERS = {
    yes_no = function(text)
        local low = text:lower()
        if low ~= "yes" and low ~= "no" then return nil, "is neither yes nor no" end
        return low
    end,
    duration_s = same(duration_s),
    checkpoint = function(text)
        local name, lead = text:match("^([^@]+)@(.*)$")
        if not name then return nil, "is not SIGNAL@SECONDS" end
        if not (lead:match("^%d+$") and #lead <= 6) then
            local lead_s, wrong = duration_s(lead)
            if not lead_s then return nil, wrong end
        end
        local known, wrong = signal_name(name:upper())
        if not known then return nil, wrong end
        return known .. "@" .. lead
    end,
    save_signal = function(text) return signal_name(text:upper()) end,
    deadline = same(function(text)
        if text:sub(1, 1) == "+" then return duration_s(text:sub(2)) end
        if not iso(text) then return nil, "is neither an ISO time nor +DURATION" end
        return true
    end),
    progress = same(function(text)
        local done, total = text:match("^([%d.]+)/([%d.]+)$")
        for _, part in ipairs({ done or "", total or "" }) do
            if not (part:match("^%d+$") or part:match("^%d+%.%d+$")) then return nil, "is not DONE/TOTAL" end
        end
        done, total = tonumber(done), tonumber(total)
        if total <= 0 or total == math.huge or done > total then
            return nil, "has more done than there is in total"
        end
        return done / total
    end),
    losses = same(function(text)
        local first, before, now = text:match("^([^:]+):([^:]+):([^:]+)$")
        for _, part in ipairs({ first or "", before or "", now or "" }) do
            local plain = part:gsub("[eE][+-]?%d+$", "")
            if not (plain:match("^%d+$") or plain:match("^%d+%.%d+$")) or tonumber(part) == math.huge then
                return nil, "is not FIRST:BEFORE:NOW"
            end
        end
        return true
    end),
    number = same(function(text)
        local plain = text:gsub("[eE][+-]?%d+$", "")
        if not (plain:match("^%d+$") or plain:match("^%d+%.%d+$")) or tonumber(text) == math.huge then
            return nil, "is no number of at least 0"
        end
        return true
    end),
    part = same(function(text)
        local plain = text:gsub("[eE][+-]?%d+$", "")
        local known = plain:match("^%d+$") or plain:match("^%d+%.%d+$")
        if not known or tonumber(text) <= 0 or tonumber(text) >= 1 then return nil, "is no number above 0 and below 1" end
        return true
    end),
    topology = function(text)
        local low = text:lower()
        if low == "nvlink" or low == "numa" or low == "switch" or low == "any" then return low end
        return nil, "is none of nvlink, numa, switch, any: choose one"
    end,
    count = same(count),
    gibibytes = function(text)
        local plain = text:gsub("[gG]$", "")
        local number = count(plain)
        if not number then return nil, "is no whole number of GiB, such as 32 or 32G" end
        return plain, nil, number
    end,
    counts = same(function(text)
        for part in (text .. ":"):gmatch("([^:]*):") do
            local number, wrong = count(part)
            if not number then return nil, wrong end
        end
        return true
    end),
    name = same(function(text)
        if #text > 64 or not text:match("^[%w_.+/-]+$") then
            return nil, "is no name of at most 64 letters, digits and . _ + / -"
        end
        return true
    end),
}

-- Text in quotes, shortened, control characters and other bytes beyond ASCII told by number.
function M.shown(text)
    if #text > 40 then text = text:sub(1, 37) .. "..." end
    return "'" .. text:gsub("[^\32-\126]", function(c) return ("\\x%02x"):format(c:byte()) end) .. "'"
end

function M.names(keys)
    local names = {}
    for _, key in ipairs(keys) do names[#names + 1] = key.name end
    return table.concat(names, ", ")
end

-- Words after each mark as {name, value}, faults of marks, and the text that belongs to no hint.
local function words(comment)
    local found, faults, left, low, at = {}, {}, {}, comment:lower(), 1
    while true do
        local first, last = low:find(M.MARK, at, true)
        while first and first > 1 and low:sub(first - 1, first - 1):match("[%w_-]") do
            first, last = low:find(M.MARK, first + 1, true)
        end
        left[#left + 1] = comment:sub(at, (first or #comment + 1) - 1)
        if not first then break end
        at = last + 1
        local name, value, after = comment:match("^%s*(%a[%w_-]*)=(%S*)()", at)
        if not name then faults[#faults + 1] = "no key=value follows " .. M.MARK end
        while name do
            found[#found + 1] = { name = name:lower():gsub("-", "_"), value = value:gsub("[,;]+$", "") }
            at = after
            name, value, after = comment:match("^%s*(%a[%w_-]*)=(%S*)()", at)
        end
    end
    return found, faults, left
end

local function outside(left) -- the user's own text, its pieces apart by one blank
    local kept = {}
    for _, piece in ipairs(left) do
        piece = piece:gsub("^%s+", ""):gsub("%s+$", "")
        if piece ~= "" then kept[#kept + 1] = piece end
    end
    return table.concat(kept, " ")
end

-- Whether a comment is longer than any that Slurm takes: nothing in it is looked at.
function M.too_long(comment) return #(comment or "") > M.MOST_BYTES end

-- A list of faults: add(text) or add(function) keeps the first few, rest() tells how many more there were.
local function faults_of(list)
    local more = 0
    return function(text)
        if #list >= M.MOST_FAULTS then more = more + 1 return end
        if type(text) == "function" then text = text() end
        if #text > MOST_CHARACTERS then text = text:sub(1, MOST_CHARACTERS - 3) .. "..." end
        list[#list + 1] = text
    end, function()
        if more > 0 then list[#list + 1] = more .. (more == 1 and " more fault" or " more faults") end
    end
end

-- keys: of slurmsched_keys.lua. values: name -> text to write. wrong: name=value as given, of no use.
-- warnings: in words. text: of the comment without hints. marked: whether there is a mark at all.
function M.parse(comment, keys)
    local by_name, hints, numbers = {}, { values = {}, wrong = {}, warnings = {} }, {}
    if M.too_long(comment) then
        hints.text, hints.marked = comment, false
        if comment:lower():find(M.MARK, 1, true) then
            hints.warnings[1] = "a comment of more than 1,024 bytes is left alone: no hint in it counts"
        end
        return hints
    end
    for _, key in ipairs(keys) do by_name[key.name] = key end
    local found, faults, left = words(comment or "")
    hints.text, hints.marked = outside(left), #left > 1
    local warn, rest = faults_of(hints.warnings)
    for _, fault in ipairs(faults) do warn(fault) end
    for _, word in ipairs(found) do
        local key = by_name[word.name]
        local text, why, number
        if not key then
            warn(function() return "unknown hint " .. M.shown(word.name) .. "; known are " .. M.names(keys) end)
        else
            if hints.values[word.name] then warn(word.name .. " is given more than once; the last one counts") end
            text, why, number = PARSERS[key.kind](word.value)
            if not text then
                warn(word.name .. "=" .. M.shown(word.value) .. " " .. why .. "; for example " .. key.example)
            end
        end
        if text then
            hints.values[word.name], numbers[word.name] = text, number
        else
            hints.wrong[#hints.wrong + 1] = word.name .. "=" .. word.value
        end
    end
    local low, high = numbers.min_gpus, numbers.max_gpus
    if low and high and low > high then
        warn(("min_gpus=%d is more than max_gpus=%d; both are ignored"):format(low, high))
        for _, name in ipairs({ "min_gpus", "max_gpus" }) do
            hints.wrong[#hints.wrong + 1] = name .. "=" .. hints.values[name]
            hints.values[name] = nil
        end
    end
    rest()
    return hints
end

-- The comment in one form: the user's text, the mark, hints in the order of the keys, then those of no use.
function M.comment(hints, keys)
    local out = {}
    for _, key in ipairs(keys) do
        local value = hints.values[key.name]
        if value then out[#out + 1] = key.name .. "=" .. value end
    end
    for _, word in ipairs(hints.wrong) do out[#out + 1] = word end
    if #out == 0 then return hints.text end
    return (hints.text == "" and "" or hints.text .. " ") .. M.MARK .. " " .. table.concat(out, " ")
end

return M

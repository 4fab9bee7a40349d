-- JobSubmitPlugins=lua: understands hints (docs/hints.md) as a job comes in and writes them into its comment in one
-- form. Decides nothing. Whatever goes wrong in here, the job goes in as it was; a site's own script, which is
-- job_submit_site.lua beside this file, is called after it and has the last word. See docs/plugins.md.

local HERE = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
local SITE = HERE .. "job_submit_site.lua"
-- hints that the owner of a running job may change
local FREE = { progress = true, loss = true, batch = true, throughput = true, noise = true, metric = true }
local NOT_GIVEN = 4294967294 -- NO_VAL of slurm.h

local function tell(text) slurm.log_user("%s", "slurmsched: " .. text) end
local function note(text) slurm.log_error("%s", "slurmsched: " .. text) end

local function loaded(name, missing_ok)
    local file = io.open(HERE .. name)
    if not file then
        if not missing_ok then note(HERE .. name .. " cannot be read; jobs go in unchanged") end
        return nil
    end
    file:close()
    local fine, value = pcall(dofile, HERE .. name)
    if fine then return value end
    note(tostring(value) .. "; it is left out")
    return nil
end

local grammar = loaded("slurmsched_hints.lua")
local keys = loaded("slurmsched_keys.lua")
local settings = loaded("slurmsched_settings.lua", true) or {}
local ready = type(grammar) == "table" and type(keys) == "table" and type(settings) == "table"

-- A site's script in a world of its own: it sees slurm and all else, and its globals do not meet ours. One that does
-- not load is an error here as it would be without us: Slurm then keeps the script it had, or does not start.
local function site_script()
    local file = io.open(SITE)
    if not file then return {} end
    file:close()
    local world = setmetatable({}, { __index = _G })
    local chunk
    if setfenv then -- Lua 5.1
        chunk = assert(loadfile(SITE))
        setfenv(chunk, world)
    else
        chunk = assert(loadfile(SITE, "t", world))
    end
    chunk()
    return world
end

local function default_partition(part_list)
    for name, part in pairs(part_list or {}) do
        if part.flag_default == 1 then return name end
    end
    return ""
end

local function defaults_for(job_desc, part_list)
    local all = settings.defaults
    if not all then return "" end
    local names = job_desc.partition
    if not names or names == "" then names = default_partition(part_list) end
    for name in names:gmatch("[^,]+") do
        if all[name] then return all[name] end
    end
    return all["*"] or ""
end

-- What the SPANK plug-in was told by --sched-*: "key=value key=value", or nothing.
local function from_options(job_desc)
    local fine, list = pcall(function() return job_desc.spank_job_env end)
    if not fine or not list then return "" end
    for _, entry in pairs(list) do
        local text = tostring(entry):match("SLURMSCHED_HINTS=(.*)$")
        if text then return grammar.too_long(text) and "" or text end
    end
    return ""
end

-- A hint that was given but cannot be read gets no default: it may have said the opposite.
local function with_defaults(hints, text)
    local more, given = grammar.parse(grammar.MARK .. " " .. text, keys), {}
    for _, word in ipairs(hints.wrong) do given[word:match("^[^=]*")] = true end
    for name, value in pairs(more.values) do
        if hints.values[name] == nil and not given[name] then hints.values[name] = value end
    end
end

-- The comment to write, and what is wrong with it. nil: the comment has none of ours, or is or would become longer than
-- Slurm takes, and stays.
local function understood(comment, options, defaults)
    local text = comment or ""
    if grammar.too_long(text) then return nil, grammar.parse(text, keys).warnings end
    if options ~= "" then text = text .. " " .. grammar.MARK .. " " .. options end
    local hints = grammar.parse(text, keys)
    if defaults ~= "" then with_defaults(hints, defaults) end
    if not hints.marked and next(hints.values) == nil then return nil, hints.warnings end
    local written = grammar.comment(hints, keys)
    return not grammar.too_long(written) and written or nil, hints.warnings
end

-- For a job of one node --gpus=N is --gpus-per-node=N, but Slurm chooses the GPUs another way (docs/topology-slurm.md).
local function per_node(job_desc)
    local wanted = job_desc.tres_per_job
    if not settings.gpus_per_node or not wanted or tonumber(job_desc.max_nodes) ~= 1 then return nil end
    for _, other in ipairs({ "tres_per_node", "tres_per_task", "tres_per_socket" }) do
        if (job_desc[other] or "") ~= "" then return nil end
    end
    return wanted:match("^gres[:/]gpu[:%w_.-]*[:=]%d+$")
end

-- The number in a setting, or nil where it is none above zero.
local function positive(value)
    local number = tonumber(value)
    return number and number >= 1 and number or nil
end

-- What a job of one GPU asks for that may share it and says which part it needs: shards. nil: it asks as it did.
local function shards(job_desc, comment)
    local per_gpu = positive(settings.shards_per_gpu)
    if not per_gpu or (tonumber(job_desc.min_nodes) or 1) % NOT_GIVEN > 1 then return nil end
    local wanted = job_desc.tres_per_node or ""
    if wanted ~= "gres/gpu:1" and wanted ~= "gres:gpu:1" and wanted ~= "gres/gpu" and wanted ~= "gres:gpu" then return nil end
    for _, other in ipairs({ "tres_per_job", "tres_per_task", "tres_per_socket" }) do
        if (job_desc[other] or "") ~= "" then return nil end
    end
    local hints = grammar.parse(comment or "", keys).values
    local part = tonumber(hints.gpu_part)
    if hints.share ~= "yes" or not part then return nil end
    local fewest = math.max(math.ceil(part * per_gpu - 1e-9), 1) -- 0.07 of 100 shards are 7, not 8
    return "gres/shard:" .. string.format("%d", fewest)
end

local function told(warnings)
    for _, warning in ipairs(warnings) do
        if settings.refuse or not settings.cli_filter then tell(warning) end
    end
    return settings.refuse and #warnings > 0
end

-- Whether the job is refused. What is to change is worked out before anything is changed.
local function submitted(job_desc, part_list)
    local comment, warnings =
        understood(job_desc.comment, from_options(job_desc), defaults_for(job_desc, part_list))
    local gpus, part = per_node(job_desc), shards(job_desc, comment)
    if told(warnings) then return true end
    if comment and comment ~= job_desc.comment then job_desc.comment = comment end
    if gpus then
        job_desc.tres_per_node = gpus
        job_desc.tres_per_job = ""
    elseif part then
        job_desc.tres_per_node = part
    end
    return false
end

local function in_order(set)
    local found = {}
    for name in pairs(set) do found[#found + 1] = name end
    table.sort(found)
    return found
end

-- The comment with the hints that the job has had, but for those that its owner may change; nil if it gives another one.
local function kept(old, new)
    local before, after = grammar.parse(old or "", keys), grammar.parse(new, keys)
    for _, key in ipairs(keys) do
        local had, gives = before.values[key.name], after.values[key.name]
        if gives == nil then
            after.values[key.name] = had
        elseif gives ~= had and not FREE[key.name] then
            return nil
        end
    end
    if next(after.values) == nil then return new end
    local written = grammar.comment(after, keys)
    if next(before.values) ~= nil and (grammar.too_long(new) or grammar.too_long(written)) then return nil end
    return written
end

-- Why the owner of a job may not make this change, or nil; and the comment to write instead of the one given, or nil.
local function guarded(job_desc, job_rec, uid)
    local guard = settings.guard or {}
    if uid == 0 or uid ~= job_rec.user_id then return nil end
    local nice, priority = tonumber(job_desc.nice), tonumber(job_desc.priority)
    if guard.nice and nice and nice ~= NOT_GIVEN and nice < (tonumber(job_rec.nice) or nice) then
        return "this site's scheduler sets nice: a job's owner may raise it, not lower it"
    end
    if guard.nice and priority and priority > 0 and priority < NOT_GIVEN then -- 0 holds a job, INFINITE releases it
        return "this site's scheduler sets nice, which priority= would set to 0: raise nice, or hold the job"
    end
    local start = tonumber(job_rec.start_time) or 0
    local waits = (tonumber(job_rec.job_state) or 1) % 256 == 0 -- PENDING; its flags are above the lowest 8 bits
    local begun = not waits and start > 0 and start <= os.time() -- a waiting job has the time that Slurm expects
    if not (guard.comment and begun and job_desc.comment) then return nil end
    local comment = kept(job_rec.comment, job_desc.comment)
    if comment then return nil, comment end
    return "hints of a job that has been given nodes stay as they are, but for " .. table.concat(in_order(FREE), " and ")
end

local function modified(job_desc, job_rec, uid)
    local why, whole = guarded(job_desc, job_rec, uid)
    if why then
        tell(why)
        return true
    end
    if not job_desc.comment then return false end
    local comment, warnings = understood(job_desc.comment, "", "")
    if told(warnings) then return true end
    comment = whole or comment
    if comment and comment ~= job_desc.comment then job_desc.comment = comment end
    return false
end

local function refused(step, ...)
    if not ready then return false end
    local fine, answer = pcall(step, ...)
    if fine then return answer end
    note(tostring(answer) .. "; the job goes on unchanged")
    return false
end

local site = site_script()

function slurm_job_submit(job_desc, part_list, submit_uid)
    if refused(submitted, job_desc, part_list) then return slurm.ERROR end
    local theirs = rawget(site, "slurm_job_submit")
    if theirs then return theirs(job_desc, part_list, submit_uid) end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    if refused(modified, job_desc, job_rec, modify_uid) then return slurm.ERROR end
    local theirs = rawget(site, "slurm_job_modify")
    if theirs then return theirs(job_desc, job_rec, part_list, modify_uid) end
    return slurm.SUCCESS
end

return slurm.SUCCESS

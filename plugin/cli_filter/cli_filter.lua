-- CliFilterPlugins=lua: tells whoever submits what is wrong with the hints in --comment (docs/hints.md), and on wish
-- what they mean. Changes nothing and refuses nothing. A site's own script, cli_filter_site.lua beside this file, is
-- called after it and has the last word. See docs/plugins.md.

local HERE = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
local SITE = HERE .. "cli_filter_site.lua"

local function exists(path)
    local file = io.open(path)
    if file then file:close() end
    return file ~= nil
end

local function loaded(name)
    if not exists(HERE .. name) then return nil end
    local fine, value = pcall(dofile, HERE .. name)
    return fine and value or nil
end

local grammar = loaded("slurmsched_hints.lua")
local keys = loaded("slurmsched_keys.lua")
local settings = loaded("slurmsched_settings.lua")
settings = type(settings) == "table" and settings or {}

local function site_script()
    if not exists(SITE) then return {} end
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

local function say(text) slurm.log_info("%s", "slurmsched: " .. text) end

local function tell(options)
    local comment = options.comment
    if type(comment) ~= "string" then return end
    local hints = grammar.parse(comment, keys)
    for _, warning in ipairs(hints.warnings) do say(warning) end
    if not settings.explain then return end
    for _, key in ipairs(keys) do
        local value = hints.values[key.name]
        if value then say(key.name .. "=" .. value .. ": " .. key.meaning) end
    end
end

local site = site_script()

function slurm_cli_setup_defaults(options, early_pass)
    local theirs = rawget(site, "slurm_cli_setup_defaults")
    if theirs then return theirs(options, early_pass) end
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
    if type(grammar) == "table" and type(keys) == "table" then pcall(tell, options) end
    local theirs = rawget(site, "slurm_cli_pre_submit")
    if theirs then return theirs(options, offset) end
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
    local theirs = rawget(site, "slurm_cli_post_submit")
    if theirs then return theirs(offset, job_id, step_id) end
    return slurm.SUCCESS
end

return slurm.SUCCESS

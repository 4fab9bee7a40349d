/*
 * SPANK plug-in: hints (docs/hints.md) as options of sbatch, salloc and srun: --sched-topo=nvlink, --sched-ckpt=USR1@60.
 *
 * It only forwards: the options go as one text into the job's SPANK environment, from where job_submit.lua takes them
 * into the comment and says what is wrong with them. Nothing is done on compute nodes. See docs/plugins.md.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(slurmsched, 1);

#define VARIABLE "SLURMSCHED_HINTS" /* as job_submit.lua knows it */
#define LONGEST 2048

/* key of the hint, option, what its value is called, help */
#define HINTS(X)                                                                                \
	X("preempt", "sched-preempt", "yes|no", "may be stopped and requeued to let others run")    \
	X("ckpt", "sched-ckpt", "signal@seconds", "signal and time to save before a stop")          \
	X("restart", "sched-restart", "duration", "what a restart costs, as 90s")                   \
	X("dur", "sched-dur", "duration", "expected run time, as 2h; no limit")                     \
	X("deadline", "sched-deadline", "time", "when it must have ended: ISO time or +12h")        \
	X("progress", "sched-progress", "done/total", "how far it is")                              \
	X("loss", "sched-loss", "first:before:now", "loss of the first step, the one before, now")  \
	X("topo", "sched-topo", "nvlink|numa|switch|any", "widest cell that its GPUs may span")     \
	X("share", "sched-share", "yes|no", "may share its GPUs with another job")                  \
	X("gpu_part", "sched-gpu-part", "part", "part of its one GPU that it needs, as 0.25")       \
	X("min_gpus", "sched-min-gpus", "n", "fewest GPUs an elastic job can run on")               \
	X("max_gpus", "sched-max-gpus", "n", "most GPUs an elastic job can make use of")            \
	X("moldable", "sched-moldable", "yes|no", "may start with fewer GPUs")                      \
	X("shrink", "sched-shrink", "yes|no", "may lose some of its nodes while it runs")           \
	X("save", "sched-save", "signal", "saves itself at this signal and goes on")                \
	X("min_cpus", "sched-min-cpus", "n", "fewest CPUs that its one task can run with")           \
	X("max_cpus", "sched-max-cpus", "n", "most CPUs that its one task can make use of")         \
	X("min_mem", "sched-min-mem", "GiB", "least memory that it can run with on its node")       \
	X("gpu_mem", "sched-gpu-mem", "GiB", "memory of each of its GPUs that it needs")            \
	X("mixed", "sched-mixed", "yes|no", "may have GPUs of several types at once")               \
	X("model", "sched-model", "name", "what is trained")                                        \
	X("batch", "sched-batch", "n", "global batch size")                                         \
	X("batches", "sched-batches", "n:n...", "batch sizes it may change to")                     \
	X("throughput", "sched-throughput", "number", "samples that it trains in a second")         \
	X("noise", "sched-noise", "number", "gradient noise scale")                                 \
	X("metric", "sched-metric", "number", "a figure for people to see, as accuracy")

#define KEY(key, option, value, help) key,
static const char *const keys[] = { HINTS(KEY) };
#define KEYS (sizeof(keys) / sizeof(keys[0]))

static char told[LONGEST]; /* "key=value key=value" */

static int take(int key, const char *value, int remote);

#define OPTION(key, option, value, help) { option, value, "slurmsched: " help, 1, 0, take },
static struct spank_option options[] = { HINTS(OPTION) };

/* Callback of every option. val: row of `keys`. */
static int take(int val, const char *optarg, int remote)
{
	size_t used = strlen(told);
	int more;

	if (remote || val < 0 || (size_t)val >= KEYS)
		return ESPANK_SUCCESS;
	for (const char *c = optarg ? optarg : ""; *c; c++) {
		if (!isgraph((unsigned char)*c)) {
			slurm_error("slurmsched: the value of --%s has a blank or a control character", options[val].name);
			return ESPANK_BAD_ARG;
		}
	}
	more = snprintf(told + used, sizeof(told) - used, "%s%s=%s", used ? " " : "", keys[val], optarg ? optarg : "");
	if (more < 0 || (size_t)more >= sizeof(told) - used) {
		told[used] = '\0';
		slurm_error("slurmsched: --%s and the hints before it are too long", options[val].name);
		return ESPANK_BAD_ARG;
	}
	return ESPANK_SUCCESS;
}

int slurm_spank_init(spank_t sp, int argc, char *argv[])
{
	(void)argc;
	(void)argv;
	for (size_t row = 0; row < KEYS; row++) {
		options[row].val = (int)row;
		if (spank_option_register(sp, &options[row]) != ESPANK_SUCCESS)
			slurm_error("slurmsched: --%s is not there: another plug-in has it", options[row].name);
	}
	return ESPANK_SUCCESS;
}

/* All options are read: hand them on. A job without any is left alone. */
int slurm_spank_init_post_opt(spank_t sp, int argc, char *argv[])
{
	spank_context_t context = spank_context();

	(void)argc;
	(void)argv;
	if (!told[0] || (context != S_CTX_ALLOCATOR && context != S_CTX_LOCAL))
		return ESPANK_SUCCESS;
	if (spank_job_control_setenv(sp, VARIABLE, told, 1) != ESPANK_SUCCESS)
		slurm_error("slurmsched: the hints of --sched options are lost; write them into --comment");
	return ESPANK_SUCCESS;
}

/*
 * A stand-in for libnvidia-ml: GPUs as a plan describes them, and whatever may go wrong.
 *
 * STAND_IN_NVML=FILE is the plan, a line each:
 *
 *   gpu UUID BUS-ID STATE STATUS CLIQUE CLUSTER MASK SUMMARY    CLUSTER: 16 bytes as 32 hex digits, MASK in hex
 *   platform GPU SERIAL SLOT TRAY HOST MODULE    what nvmlDeviceGetPlatformInfo tells of it; SERIAL "-" is none
 *   count N                 what nvmlDeviceGetCount_v2 says; the number of GPUs otherwise
 *   newest N                the newest structure that nvmlDeviceGetGpuFabricInfoV knows: 3 (as without this line), 2 or 1
 *   mismatch N              what it returns to a structure that it does not know (25, NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
 *   claim N                 the version that it writes into the structure, in hex
 *   dirty                   padding is not zero
 *   fail CALL GPU CODE      the call returns this, for one GPU or for all (-1)
 *   crash CALL GPU, hang CALL GPU
 *   stop CALL GPU           the process stops itself, once
 *   daemon CALL GPU N       N processes in sessions of their own, whose parent has ended; then the call goes on
 *
 * CALL is init, driver, count, handle, pci, uuid, platform, fabric or shutdown.
 * -DWITHOUT_V, -DWITHOUT_FABRIC, -DWITHOUT_INIT, -DWITHOUT_PLATFORM leave functions out, as older drivers do.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };
enum { GPUS = 64, FAULTS = 16, UUID = 16 };

struct pci {
	char legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

/* nvmlGpuFabricInfo_t, and what versions 2 and 3 put before and behind it */
struct fabric {
	unsigned char cluster[UUID];
	unsigned status, clique;
	unsigned char state;
};

struct fabric_v3 {
	unsigned version;
	struct fabric old;
	unsigned mask;
	unsigned char summary;
};

_Static_assert(sizeof(struct fabric_v3) == 0x28, "nvmlGpuFabricInfo_v3_t");

struct platform_v2 {
	unsigned version;
	unsigned char ib_guid[16], chassis_serial[16], slot, tray, host, peer, module;
};

_Static_assert(sizeof(struct platform_v2) == 0x2c, "nvmlPlatformInfo_v2_t");

static struct gpu {
	char uuid[96], bus_id[32];
	struct fabric_v3 fabric;
	struct platform_v2 platform;
	int has_platform;
} gpus[GPUS];

static struct fault {
	char how[8], call[16];
	int gpu, code;
} faults[FAULTS];

static unsigned gpu_count, fault_count, told, newest, mismatch, claim, dirty, initialized;

static void read_cluster(unsigned char *cluster, const char *digits)
{
	for (int i = 0; i < UUID; i++)
		sscanf(digits + 2 * i, "%2hhx", &cluster[i]);
}

static void read_gpu(const char *line)
{
	struct gpu *gpu = &gpus[gpu_count];
	struct fabric_v3 *fabric = &gpu->fabric;
	char cluster[2 * UUID + 1];

	if (gpu_count < GPUS &&
	    sscanf(line, "gpu %95s %31s %hhu %u %u %32s %x %hhu", gpu->uuid, gpu->bus_id, &fabric->old.state,
		   &fabric->old.status, &fabric->old.clique, cluster, &fabric->mask, &fabric->summary) == 8) {
		read_cluster(fabric->old.cluster, cluster);
		told = ++gpu_count;
	}
}

static void read_platform(const char *line)
{
	struct platform_v2 platform = { .version = 0x0200002c, .peer = 1 };
	char serial[17];
	unsigned gpu;

	if (sscanf(line, "platform %u %16s %hhu %hhu %hhu %hhu", &gpu, serial, &platform.slot, &platform.tray,
		   &platform.host, &platform.module) == 6 && gpu < GPUS) {
		if (strcmp(serial, "-"))
			memcpy(platform.chassis_serial, serial, strlen(serial)); /* 16 bytes have no NUL */
		gpus[gpu].platform = platform;
		gpus[gpu].has_platform = 1;
	}
}

static void read_line(const char *line)
{
	struct fault *fault = &faults[fault_count];

	if (!strncmp(line, "gpu ", 4))
		read_gpu(line);
	else if (!strncmp(line, "platform ", 9))
		read_platform(line);
	else if (!strncmp(line, "dirty", 5))
		dirty = 1;
	else if (!(sscanf(line, "count %u", &told) || sscanf(line, "newest %u", &newest) ||
		   sscanf(line, "mismatch %u", &mismatch) || sscanf(line, "claim %x", &claim)) &&
		 sscanf(line, "%7s %15s %d %d", fault->how, fault->call, &fault->gpu, &fault->code) >= 3)
		fault_count++;
}

__attribute__((constructor)) static void read_plan(void)
{
	const char *name = getenv("STAND_IN_NVML");
	FILE *plan = name ? fopen(name, "r") : NULL;
	char line[256];

	newest = 3;
	mismatch = 25;
	while (plan && fgets(line, sizeof line, plan))
		read_line(line);
	if (plan)
		fclose(plan);
}

static void leave_daemon(void)
{
	pid_t child = fork();

	if (child) {
		waitpid(child, NULL, 0);
		return;
	}
	setsid();
	if (fork())
		_exit(0);
	while (1)
		pause();
}

/* What a call returns before it does anything, if it returns at all. */
static unsigned begin(const char *call, const struct gpu *gpu)
{
	int number = gpu ? (int)(gpu - gpus) : -1;

	for (unsigned i = 0; i < fault_count; i++) {
		struct fault *fault = &faults[i];

		if (strcmp(fault->call, call) || (fault->gpu >= 0 && fault->gpu != number))
			continue;
		if (!strcmp(fault->how, "crash"))
			abort();
		while (!strcmp(fault->how, "hang"))
			pause();
		if (!strcmp(fault->how, "stop"))
			raise(SIGSTOP);
		if (!strcmp(fault->how, "daemon"))
			while (fault->code-- > 0)
				leave_daemon();
		if (strcmp(fault->how, "fail"))
			continue;
		return fault->code;
	}
	return initialized || !strcmp(call, "init") ? SUCCESS : UNINITIALIZED;
}

static unsigned copy(char *to, unsigned size, const char *from)
{
	return snprintf(to, size, "%s", from) < (int)size ? SUCCESS : INSUFFICIENT_SIZE;
}

#ifndef WITHOUT_INIT
unsigned nvmlInitWithFlags(unsigned flags)
{
	unsigned error = begin("init", NULL);

	/* what a library may well do, and what must not end up in the answer */
	if (write(1, "NVML\n", 5) < 0 || flags)
		return INVALID_ARGUMENT;
	initialized = !error;
	return error;
}
#endif

unsigned nvmlShutdown(void)
{
	unsigned error = begin("shutdown", NULL);

	initialized = 0;
	return error;
}

const char *nvmlErrorString(unsigned error)
{
	return error == 15 ? "GPU is lost" : error == 18 ? "Driver/library version mismatch" : "Something else";
}

unsigned nvmlSystemGetDriverVersion(char *version, unsigned size)
{
	unsigned error = begin("driver", NULL);

	return error ? error : copy(version, size, "580.95.05");
}

unsigned nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = told;
	return begin("count", NULL);
}

unsigned nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu)
{
	if (index >= gpu_count)
		return INVALID_ARGUMENT;
	*gpu = &gpus[index];
	return begin("handle", *gpu);
}

unsigned nvmlDeviceGetUUID(const struct gpu *gpu, char *uuid, unsigned size)
{
	unsigned error = begin("uuid", gpu);

	return error ? error : copy(uuid, size, gpu->uuid);
}

unsigned nvmlDeviceGetPciInfo_v3(const struct gpu *gpu, struct pci *pci)
{
	unsigned error = begin("pci", gpu);

	return error ? error : copy(pci->bus_id, sizeof pci->bus_id, gpu->bus_id);
}

#ifndef WITHOUT_PLATFORM
unsigned nvmlDeviceGetPlatformInfo(const struct gpu *gpu, struct platform_v2 *info)
{
	unsigned error = begin("platform", gpu);

	if (error)
		return error;
	if (info->version != 0x0200002c)
		return VERSION_MISMATCH;
	if (!gpu->has_platform)
		return NOT_SUPPORTED;
	*info = gpu->platform;
	return SUCCESS;
}
#endif

#ifndef WITHOUT_FABRIC
static void set_state(struct fabric *to, const struct fabric *from)
{
	if (dirty)
		memset(&to->state, 0xaa, 4);
	memcpy(to->cluster, from->cluster, UUID);
	to->status = from->status;
	to->clique = from->clique;
	to->state = from->state;
}

unsigned nvmlDeviceGetGpuFabricInfo(const struct gpu *gpu, struct fabric *info)
{
	unsigned error = begin("fabric", gpu);

	if (!error)
		set_state(info, &gpu->fabric.old);
	return error;
}

#ifndef WITHOUT_V
unsigned nvmlDeviceGetGpuFabricInfoV(const struct gpu *gpu, struct fabric_v3 *info)
{
	unsigned error = begin("fabric", gpu), version = info->version >> 24;
	unsigned size = version == 3 ? sizeof *info : sizeof *info - 4;

	if (version < 2 || version > newest || (info->version & 0xffffff) != size)
		return mismatch;
	if (error)
		return error;
	set_state(&info->old, &gpu->fabric.old);
	info->mask = gpu->fabric.mask;
	if (version == 3)
		info->summary = gpu->fabric.summary;
	if (claim)
		info->version = claim;
	return SUCCESS;
}
#endif
#endif

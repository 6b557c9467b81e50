/*
 * A stand-in for libibumad: a switch at the far end of every port, and whatever may go wrong on the way there.
 *
 * STAND_IN=DEVICE:FAULT,DEVICE:FAULT,... gives devices their faults; the others answer.
 * STAND_IN_LOG=FILE gets every MAD that leaves, "device port hex" in a line, the upper half of its TransactionID changed
 * as the kernel does.
 *
 *   silent           the kernel reports a timeout after timeout_ms
 *   deaf             nobody ever reports anything
 *   lossy            the first request is lost, the next is answered
 *   nameless         NodeDescription is never answered
 *   wrong-tid        a reply to somebody else comes first
 *   short            the reply is cut after 100 bytes
 *   busy             the reply's status says so
 *   absent           there is no umad device for this port
 *   not-permitted    its device node may not be opened
 *   refused          no agent of this class can be registered
 *   send-fails       umad_send() fails
 *   no-smi           it fails with EPERM for an agent of class 0x81
 *   crash, hang      umad_recv() does that
 *   blocks           umad_open_port() never returns
 *
 * An agent of class 3 reaches a subnet administrator, which knows one link: to port 3 of the switch, LID 1.
 *
 *   flood            other MADs come without end, the reply never: segments of a transfer that does not end
 *   huge             the reply has 64 kB of records
 *   offset           AttributeOffset is 0
 *   sa-busy, denied  the status says so
 *   foreign          the records are of another LID
 *   moving           each reply is late, and no node has the LID of a link
 *   crowd            500 links of the LID
 *   echo             the request comes back
 *   abort            the transfer is given up (RMPP ABORT)
 *   lying            the length of the reply is 1 GB
 *   m-key            it answers, the switch does not
 *   virtual          it answers requests with a global route only, to its well-known GID; no agent of class 0x81
 *
 * Its subnet has 666 switches: leaves of LID 1 to 4, spines of 5 to 8, and others without links. A leaf's port 40 + N is
 * cabled to port LID of spine N; port 9 of each has a host, port 65 of a leaf the CA inside it, LID 1000 + LID.
 *
 *   no-end           the last segment of a table never comes
 *   million          a table has a million records
 *   all-nodes        a table of switches begins with a CA
 *   itself           a link leads to its own port
 *
 * With one of these it denies all, and each port of the switch is up; what is over more than one hop
 *
 *   alone            is that switch again, by the port that leads to us
 *   astray           answers by another route
 *   dead-ends        does not answer
 *   maze             is another switch of 254 ports
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { HEADER = 64, MAD = 256, LONGEST = 1 << 20, PORTS = 64, AGENT = 7, SWITCHES = 666, RECORD = 112 };
enum { NODE_DESCRIPTION = 0x10, NODE_INFO = 0x11, PORT_INFO = 0x15, HOPS = 7, PATH = 128, STATE = 32 };

/* struct ib_user_mad, as far as anything here looks at it */
struct user_mad {
	uint32_t agent_id, status, timeout_ms, retries, length;
	uint8_t address[HEADER - 20];
	uint8_t mad[LONGEST];
};

static struct port {
	char device[64], fault[32];
	int in_use, number, timer, sent, strangers, length;
	struct user_mad pending;
} ports[PORTS];

static int is(const struct port *port, const char *fault)
{
	return strcmp(port->fault, fault) == 0;
}

/* The address in a MAD's header is one of struct ib_mad_addr, but for the queue pair. */
static int is_global(const struct user_mad *umad)
{
	return umad->address[12] && !memcmp(umad->address + 16, "\xfe\x80\0\0\0\0\0\1\2\0\0\0\0\0\0\2", 16);
}

static int is_walked(const struct port *port)
{
	return is(port, "alone") || is(port, "astray") || is(port, "dead-ends") || is(port, "maze");
}

static int fail(int error, int result)
{
	errno = error;
	return result;
}

static void find_fault(struct port *port)
{
	const char *all = getenv("STAND_IN");
	size_t length = strlen(port->device);

	for (const char *one = all; one && *one; one = strchr(one, ',') ? strchr(one, ',') + 1 : NULL)
		if (!strncmp(one, port->device, length) && one[length] == ':')
			sscanf(one + length + 1, "%31[^,]", port->fault);
}

static void ring(const struct port *port, int ms)
{
	struct itimerspec when = { .it_value = { ms / 1000, (ms % 1000) * 1000000L + (ms == 0) } };

	timerfd_settime(port->timer, 0, &when, NULL);
}

static void log_mad(const struct port *port, const uint8_t *mad, int length)
{
	const char *name = getenv("STAND_IN_LOG");
	FILE *log = name ? fopen(name, "a") : NULL;

	if (!log)
		return;
	fprintf(log, "%s %d ", port->device, port->number);
	for (int i = 0; i < length; i++)
		fprintf(log, "%02x", mad[i]);
	fputc('\n', log);
	fclose(log);
}

/* The far end's answer, over the request: a switch whose port 2 + N is cabled to our port N. */
static void answer(const struct port *port, uint8_t *mad)
{
	static const uint8_t guid[8] = { 0xb0, 0xcf, 0x0e, 0x03, 0x00, 0xd6, 0x6c, 0x80 };
	uint8_t *data = mad + 64;

	mad[3] = 0x81;
	mad[4] = 0x80;
	mad[5] = is(port, "busy");
	switch (mad[17]) {
	case NODE_INFO:
		memcpy(data, "\1\1\2\101", 4);
		for (int i = 0; i < 3; i++)
			memcpy(data + 4 + 8 * i, guid, 8);
		data[36] = 2 + port->number;
		if (is(port, "maze") && mad[HOPS] > 1) {
			memcpy(data + 12, mad + PATH, 8);
			data[3] = data[36] = 254;
		}
		break;
	case PORT_INFO:
		data[STATE] = is_walked(port) ? 4 : 0;
		break;
	case NODE_DESCRIPTION:
		strcpy((char *)data, "MF0;L90.1.3:MQM9700/U1");
		break;
	}
	if (is(port, "astray") && mad[HOPS] > 1)
		mad[PATH + mad[HOPS]] ^= 1;
}

static void put_node(uint8_t *record, int type, int lid)
{
	static const uint8_t guid[6] = { 0xb0, 0xcf, 0x0e, 0x03, 0x00, 0xd6 };

	memset(record, 0, RECORD);
	record[0] = lid >> 8;
	record[1] = lid;
	memcpy(record + 4, "\1\1\0\101", 4);
	record[6] = type;
	for (int i = 0; i < 3; i++) {
		memcpy(record + 8 + 8 * i, guid, 6);
		memcpy(record + 14 + 8 * i, record, 2);
	}
	memcpy(record + 34, type == 1 ? "\317\11" : "\322\362", 2);
	record[40] = 60;
	snprintf((char *)record + 44, 64, type == 1 ? "Mellanox Technologies Aggregation Node" : "MF0;s%03d:MQM9700/U1",
		 lid);
}

static void put_link(uint8_t *record, int lid, int port, int to_lid, int to_port)
{
	uint8_t link[8] = { lid >> 8, lid, port, to_port, to_lid >> 8, to_lid };

	memcpy(record, link, 8);
}

/* A table of the subnet, as the kernel has joined it of its segments; returns its length. */
static int tabulate(const struct port *port, uint8_t *mad)
{
	uint8_t *data = mad + 56;
	int links = mad[17] == 0x20, of_switches = mad[55] == 0x10, lid = data[0] << 8 | data[1], count = 0;

	mad[3] = 0x92;
	mad[45] = (links ? 8 : RECORD) / 8;
	memcpy(mad + 24, links ? "\1\1\7\0\0\0\0\1" : "\1\1\3\0\0\0\0\1", 8);
	if (is(port, "offset"))
		mad[45]--;
	if (links) {
		memset(data, 0, 200);
		for (int i = 1; i <= 4 && lid <= 8; i++)
			put_link(data + 8 * count++, lid, lid <= 4 ? 40 + i : i, lid <= 4 ? 4 + i : i,
				 lid <= 4 ? lid : 36 + lid);
		put_link(data + 8 * count++, lid, 9, 2000 + lid, 1);
		if (lid <= 4)
			put_link(data + 8 * count++, lid, 65, 1000 + lid, 1);
		if (is(port, "itself"))
			put_link(data + 8 * count++, lid, 10, lid, 10);
		return 56 + 8 * count;
	}
	for (int i = 1; i <= (of_switches ? SWITCHES : 4); i++)
		put_node(data + RECORD * count++, of_switches ? 2 : 1, of_switches ? i : 1000 + i);
	if (is(port, "all-nodes"))
		data[6] = 1;
	return 56 + RECORD * count;
}

/* The subnet administrator's answer; returns its length. */
static int administer(const struct port *port, uint8_t *mad)
{
	uint8_t *data = mad + 56, switch_[MAD] = { 0 };
	int links = mad[17] == 0x20, record = links ? 8 : 112, lid = is(port, "foreign") ? 77 : links ? data[1] : 1;

	if (is(port, "echo"))
		return MAD;
	mad[3] = 0x92;
	if (is(port, "abort")) {
		memcpy(mad + 24, "\1\4\1\170", 4);
		return MAD;
	}
	if (is(port, "sa-busy") || is(port, "denied") || is_walked(port)) {
		mad[is(port, "sa-busy") ? 5 : 4] = is(port, "sa-busy") ? 1 : 7;
		return MAD;
	}
	if (mad[55] != 1 || (links && data[1] != 22))
		return tabulate(port, mad);
	if (is(port, "moving") && !links) {
		mad[4] = 3;
		return MAD;
	}
	mad[45] = is(port, "offset") ? 0 : record / 8;
	memset(data, 0, 200);
	data[1] = lid;
	if (links) {
		memcpy(data + 2, "\1\3\0\1", 4);
		for (int i = 1; is(port, "crowd") && i < 500; i++) {
			memcpy(data + 8 * i, data, 8);
			data[8 * i + 2] = i;
		}
		return 56 + 8 * (is(port, "crowd") ? 500 : 1);
	} else {
		mad[17] = NODE_INFO;
		answer(port, switch_);
		switch_[17] = NODE_INFO;
		answer(port, switch_);
		memcpy(data + 4, switch_ + 64, 40);
		strcpy((char *)data + 44, "MF0;L90.1.3:MQM9700/U1");
		mad[17] = 0x11;
	}
	return 56 + record;
}

int umad_init(void)
{
	return 0;
}

size_t umad_size(void)
{
	return HEADER;
}

void *umad_get_mad(void *umad)
{
	return ((struct user_mad *)umad)->mad;
}

int umad_status(void *umad)
{
	return ((struct user_mad *)umad)->status;
}

int umad_set_addr(void *umad, int lid, int qp, int sl, int qkey)
{
	((struct user_mad *)umad)->address[0] = qp;
	if (qp == 1)
		return lid == 9 && sl == 2 && (uint32_t)qkey == 0x80010000 ? 0 : fail(EINVAL, -EINVAL);
	return umad && lid == 0xffff && !qp && !sl && !qkey ? 0 : fail(EINVAL, -EINVAL);
}

int umad_set_grh(void *umad, void *address)
{
	struct user_mad *mad = umad;

	mad->address[12] = address != NULL;
	if (address)
		memcpy(mad->address + 16, (uint8_t *)address + 16, 16);
	return 0;
}

int umad_set_pkey(void *umad, int index)
{
	return umad && index < 8 ? 0 : fail(EINVAL, -EINVAL);
}

int umad_open_port(const char *device, int number)
{
	struct port *port = ports;

	while (port < ports + PORTS && port->in_use)
		port++;
	if (port == ports + PORTS)
		return fail(EMFILE, -EMFILE);
	memset(port, 0, sizeof *port);
	snprintf(port->device, sizeof port->device, "%s", device);
	port->number = number;
	find_fault(port);
	while (is(port, "blocks"))
		pause();
	if (is(port, "absent"))
		return fail(ENOENT, -EINVAL);
	if (is(port, "not-permitted"))
		return fail(EACCES, -EIO);
	port->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	port->in_use = 1;
	return port - ports;
}

int umad_close_port(int id)
{
	ports[id].in_use = 0;
	return close(ports[id].timer);
}

int umad_get_fd(int id)
{
	return ports[id].timer;
}

int umad_register(int id, int class, int version, uint8_t rmpp, void *methods)
{
	if (class == 3 && version == 2 && rmpp == 1 && !methods)
		return AGENT;
	if (class != 0x81 || version != 1 || rmpp || methods || is(&ports[id], "refused") ||
	    is(&ports[id], "virtual"))
		return fail(EPROTONOSUPPORT, -EPERM);
	return AGENT;
}

int umad_unregister(int id, int agent)
{
	return id < PORTS && ports[id].in_use && agent == AGENT ? 0 : fail(EINVAL, -1);
}

int umad_send(int id, int agent, void *umad, int length, int timeout_ms, int retries)
{
	struct port *port = &ports[id];
	uint8_t *mad = port->pending.mad;
	int lost;

	if (agent != AGENT || length != MAD || retries || is(port, "send-fails"))
		return fail(EINVAL, -EIO);
	memcpy(&port->pending, umad, HEADER + MAD);
	if (is(port, "no-smi") && mad[1] != 3)
		return fail(EPERM, -EIO);
	memcpy(mad + 8, "\0\0\0\7", 4);
	log_mad(port, mad, length);
	lost = is(port, "silent") || (is(port, "lossy") && !port->sent) || (is(port, "nameless") && mad[17] != NODE_INFO) ||
	       (is(port, "m-key") && mad[1] != 3) || (is(port, "no-end") && mad[55] == 0x10) ||
	       (is(port, "virtual") && !is_global(&port->pending)) ||
	       (is(port, "dead-ends") && mad[1] != 3 && mad[HOPS] > 1);
	port->sent++;
	port->strangers = is(port, "wrong-tid");
	port->pending.status = lost ? ETIMEDOUT : 0;
	port->length = MAD;
	if (!lost && mad[1] == 3)
		port->length = administer(port, mad);
	else if (!lost)
		answer(port, mad);
	if (!is(port, "deaf"))
		ring(port, lost ? timeout_ms : is(port, "moving") ? timeout_ms * 3 / 4 : 0);
	return 0;
}

int umad_recv(int id, void *umad, int *length, int timeout_ms)
{
	struct port *port = &ports[id];
	struct user_mad *out = umad;
	uint64_t rings;

	if (is(port, "crash"))
		abort();
	while (is(port, "hang"))
		pause();
	if (timeout_ms || read(port->timer, &rings, sizeof rings) < 0)
		return fail(EAGAIN, -EAGAIN);
	if (is(port, "huge") || is(port, "million") || *length < port->length)
		return fail(ENOSPC, -ENOSPC);
	if (is(port, "flood")) {
		port->strangers = 1;
		usleep(1000);
	}
	*length = port->pending.status ? 24 : is(port, "short") ? 100 : port->length;
	memcpy(out, &port->pending, HEADER + *length);
	if (port->strangers) {
		port->strangers--;
		out->mad[15] ^= 0xff;
		ring(port, 0);
	}
	if (is(port, "lying"))
		*length = 1 << 30;
	return AGENT;
}

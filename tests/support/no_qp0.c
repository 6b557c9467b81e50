/*
 * Refuses agents of queue pair 0 as a kernel does whose port has no subnet management interface: preloaded before
 * ibsim's library (agent/infiniband/umad.py, ioctl IB_USER_MAD_REGISTER_AGENT of include/uapi/rdma/ib_user_mad.h).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>

struct reg_req {
	uint32_t id, method_mask[4];
	uint8_t qpn, mgmt_class, mgmt_class_version, oui[3], rmpp_version;
};

#define REGISTER_AGENT _IOWR(0x1b, 1, struct reg_req)

int ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
	va_list arguments;
	void *argument;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (request == REGISTER_AGENT && ((struct reg_req *)argument)->qpn == 0) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return next(fd, request, argument);
}

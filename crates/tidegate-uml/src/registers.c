/*
 * Preloaded into the kernel, whose buffer for the registers of its processes was sized when it was built. A CPU with
 * more of them (AMX) refuses to take a piece of that size. Here the rest is filled in with what the process has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Not on the stack, of which the kernel's threads have little; it runs on one CPU. */
static char all[64 << 10] __attribute__((aligned(64)));

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);
	if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE) {
		struct iovec *some = data, whole = { all, sizeof all };
		if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, addr, &whole) == 0 && whole.iov_len > some->iov_len) {
			memcpy(all, some->iov_base, some->iov_len);
			return syscall(SYS_ptrace, request, pid, addr, &whole);
		}
	}
	/* The library's own returns what a peek found. */
	static long (*library)(enum __ptrace_request, ...);
	if (!library)
		library = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
	return library(request, pid, addr, data);
}

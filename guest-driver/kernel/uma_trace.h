/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM virtio_uma

#if !defined(UMA_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define UMA_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(uma_fault,
	TP_PROTO(u32 asid, u64 va, u32 access, u64 sequence),
	TP_ARGS(asid, va, access, sequence),
	TP_STRUCT__entry(__field(u32, asid) __field(u64, va) __field(u32, access) __field(u64, sequence)),
	TP_fast_assign(__entry->asid = asid; __entry->va = va; __entry->access = access;
		       __entry->sequence = sequence;),
	TP_printk("asid=%u va=%#llx access=%#x seq=%llu", __entry->asid, __entry->va, __entry->access,
		  __entry->sequence)
);

TRACE_EVENT(uma_fault_answered,
	TP_PROTO(u32 asid, u64 va, u32 result, u32 tries),
	TP_ARGS(asid, va, result, tries),
	TP_STRUCT__entry(__field(u32, asid) __field(u64, va) __field(u32, result) __field(u32, tries)),
	TP_fast_assign(__entry->asid = asid; __entry->va = va; __entry->result = result;
		       __entry->tries = tries;),
	TP_printk("asid=%u va=%#llx result=%u tries=%u", __entry->asid, __entry->va, __entry->result,
		  __entry->tries)
);

TRACE_EVENT(uma_migrate,
	TP_PROTO(bool to_device, u32 cause, u64 start, u64 pages, u32 huge),
	TP_ARGS(to_device, cause, start, pages, huge),
	TP_STRUCT__entry(__field(bool, to_device) __field(u32, cause) __field(u64, start)
			 __field(u64, pages) __field(u32, huge)),
	TP_fast_assign(__entry->to_device = to_device; __entry->cause = cause; __entry->start = start;
		       __entry->pages = pages; __entry->huge = huge;),
	TP_printk("to=%s cause=%u start=%#llx pages=%llu huge=%u",
		  __entry->to_device ? "device" : "system", __entry->cause, __entry->start,
		  __entry->pages, __entry->huge)
);

TRACE_EVENT(uma_invalidate,
	TP_PROTO(u32 asid, u64 start, u64 end, u64 epoch),
	TP_ARGS(asid, start, end, epoch),
	TP_STRUCT__entry(__field(u32, asid) __field(u64, start) __field(u64, end) __field(u64, epoch)),
	TP_fast_assign(__entry->asid = asid; __entry->start = start; __entry->end = end;
		       __entry->epoch = epoch;),
	TP_printk("asid=%u start=%#llx end=%#llx epoch=%llu", __entry->asid, __entry->start,
		  __entry->end, __entry->epoch)
);

TRACE_EVENT(uma_job,
	TP_PROTO(u32 asid, u64 job, u32 kernel, bool ended, u32 status),
	TP_ARGS(asid, job, kernel, ended, status),
	TP_STRUCT__entry(__field(u32, asid) __field(u64, job) __field(u32, kernel) __field(bool, ended)
			 __field(u32, status)),
	TP_fast_assign(__entry->asid = asid; __entry->job = job; __entry->kernel = kernel;
		       __entry->ended = ended; __entry->status = status;),
	TP_printk("asid=%u job=%llu kernel=%u %s status=%u", __entry->asid, __entry->job,
		  __entry->kernel, __entry->ended ? "ended" : "submitted", __entry->status)
);

TRACE_EVENT(uma_session,
	TP_PROTO(u64 session, bool begins),
	TP_ARGS(session, begins),
	TP_STRUCT__entry(__field(u64, session) __field(bool, begins)),
	TP_fast_assign(__entry->session = session; __entry->begins = begins;),
	TP_printk("session=%#llx %s", __entry->session, __entry->begins ? "begins" : "ends")
);

#endif /* UMA_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE uma_trace
#include <trace/define_trace.h>

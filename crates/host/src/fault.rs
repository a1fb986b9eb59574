//! What a memory fault leaves behind: a backtrace in the log, and the death that a monitor waits
//! for.
//!
//! The runtime's own handler would swallow a SIGSEGV that kill(1) sent. The lines are those of the
//! reference: its operators grep for `SIGSEGV detected, backtrace:`.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// First line of a backtrace.
const HEADING: &str = "SIGSEGV detected, backtrace:";

/// Most frames that are told.
const FRAMES_MAX: usize = 64;

/// The log file, for a process without a monitor; -1 is none.
static LOG_FILE: AtomicI32 = AtomicI32::new(-1);

/// The monitor's pipe, which comes first: the monitor logs what it reads there; -1 is none.
static MONITOR: AtomicI32 = AtomicI32::new(-1);

/// Where the program was loaded, so that addr2line(1) understands the addresses.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// The log file's descriptor, which stays open until the next call.
pub(crate) fn set_log_file(descriptor: Option<BorrowedFd<'_>>) {
    LOG_FILE.store(descriptor.map_or(-1, |descriptor| descriptor.as_raw_fd()), Ordering::Relaxed);
}

/// This process has a monitor at the other end of `pipe`.
pub(crate) fn set_monitor(pipe: OwnedFd) {
    // Open until the process ends.
    MONITOR.store(pipe.into_raw_fd(), Ordering::Relaxed);
}

/// Makes a SIGSEGV tell where it came from, and kill; other faults just kill.
pub(crate) fn kill_on_fault() {
    BASE.store(load_address(), Ordering::Relaxed);
    // SAFETY: SIG_DFL runs no code of ours. `on_fault` only uses write(2), atomics and the unwinder,
    // which reads the stack and tables in place; SA_RESETHAND makes a fault inside of it deadly.
    // No other thread exists yet that could rely on the old handlers.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    }
}

/// Where the kernel mapped this program (proc_pid_maps(5)).
fn load_address() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let first = maps.split('-').next().unwrap_or_default();
    usize::from_str_radix(first, 16).unwrap_or(0)
}

/// The handler: nothing here allocates or takes a lock of ours.
extern "C" fn on_fault(signal: c_int) {
    let (monitor, log) = (MONITOR.load(Ordering::Relaxed), LOG_FILE.load(Ordering::Relaxed));
    let sink = if monitor >= 0 { monitor } else { log };
    if sink >= 0 {
        write(sink, HEADING.as_bytes());
        write(sink, b"\n");
        let mut frames: [usize; 2] = [0, sink as usize];
        // SAFETY: `frames` outlives the call, and `on_frame` takes the pointer back as what it is.
        #[allow(unsafe_code)]
        unsafe {
            _Unwind_Backtrace(on_frame, (&raw mut frames).cast());
        }
    }
    // SAFETY: raise(3) is async-signal-safe; SA_RESETHAND has restored the deadly default.
    #[allow(unsafe_code)]
    unsafe {
        libc::raise(signal);
    }
}

extern "C" fn on_frame(context: *mut c_void, state: *mut c_void) -> c_int {
    // SAFETY: `state` is the array that `on_fault` passed, `context` the unwinder's own.
    #[allow(unsafe_code)]
    let (frames, ip) = unsafe { (&mut *state.cast::<[usize; 2]>(), _Unwind_GetIP(context)) };
    frames[0] += 1;
    let mut line = *b"  0x0000000000000000 <weir+0x0000000000000000>\n";
    hex(ip, &mut line[4..20]);
    hex(ip.wrapping_sub(BASE.load(Ordering::Relaxed)), &mut line[29..45]);
    write(frames[1] as c_int, &line);
    // Anything but 0 ends the walk.
    c_int::from(frames[0] >= FRAMES_MAX)
}

fn hex(mut value: usize, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[value & 15];
        value >>= 4;
    }
}

fn write(descriptor: c_int, bytes: &[u8]) {
    // SAFETY: write(2) reads `bytes` only; a bad descriptor is an error, which changes nothing here.
    #[allow(unsafe_code)]
    unsafe {
        libc::write(descriptor, bytes.as_ptr().cast(), bytes.len());
    }
}

// SAFETY: the unwinder's C interface (Itanium C++ ABI, level 1); the standard library links it.
#[allow(unsafe_code)]
unsafe extern "C" {
    fn _Unwind_Backtrace(
        trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

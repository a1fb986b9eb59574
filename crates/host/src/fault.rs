//! Faults kill at once: the runtime's own handler would swallow a SIGSEGV that kill(1) sent, and a
//! monitor waits for the death.

/// Gives the signals of memory faults back to the system's default, death with a core dump.
pub(crate) fn kill_on_fault() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: SIG_DFL runs no code of ours, so nothing here can be called in a bad moment; no
        // other thread exists yet that could rely on the old handler.
        #[allow(unsafe_code)]
        unsafe {
            libc::signal(signal, libc::SIG_DFL)
        };
    }
}

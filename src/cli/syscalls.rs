//! System calls that a daemon never makes, and that would help an attacker who controls it: they fail with EPERM (seccomp(2)).

use std::collections::BTreeMap;

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Programs in the kernel, other processes, mounts, namespaces, modules, keys, the clock, other programs, and interfaces
/// that have been ways into the kernel.
const REFUSED: &[c_long] = &[
    SYS_acct,
    SYS_add_key,
    SYS_adjtimex,
    SYS_bpf,
    SYS_chroot,
    SYS_clock_adjtime,
    SYS_clock_settime,
    SYS_delete_module,
    SYS_execve,
    SYS_execveat,
    SYS_fanotify_init,
    SYS_finit_module,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_fspick,
    SYS_init_module,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    SYS_kcmp,
    SYS_kexec_file_load,
    SYS_kexec_load,
    SYS_keyctl,
    SYS_mknodat,
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_open_by_handle_at,
    SYS_open_tree,
    SYS_perf_event_open,
    SYS_personality,
    SYS_pidfd_getfd,
    SYS_pivot_root,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_ptrace,
    SYS_quotactl,
    SYS_reboot,
    SYS_request_key,
    SYS_setdomainname,
    SYS_sethostname,
    SYS_setns,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
    SYS_syslog,
    SYS_umount2,
    SYS_unshare,
    SYS_userfaultfd,
    SYS_vhangup,
];
/// Those that only some processors have.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[SYS_ioperm, SYS_iopl, SYS_mknod, SYS_modify_ldt, SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[];
/// What marks a call of the x32 interface, which a kernel may have beside that of 64 bits; no thread is started by it.
#[cfg(target_arch = "x86_64")]
const X32: c_long = 0x4000_0000;
/// Calls that have other numbers there: execve, ptrace, kexec_load, process_vm_readv, process_vm_writev, execveat. Kernels
/// before 5.4 know these without the mark, too.
#[cfg(target_arch = "x86_64")]
const REFUSED_X32: &[c_long] = &[520, 521, 528, 539, 540, 545];

/// All calls that are refused, in each interface that this processor has.
fn refused() -> impl Iterator<Item = c_long> {
    let here = REFUSED.iter().chain(REFUSED_HERE).copied();
    #[cfg(target_arch = "x86_64")]
    let here = {
        let here = here.chain(REFUSED_X32.iter().copied());
        here.clone().chain(here.chain([SYS_clone, SYS_clone3]).map(|call| call | X32))
    };
    here
}

/// Refuses these calls to this thread and all that it starts. Returns false where seccomp is not known for this processor.
///
/// # Errors
/// If the kernel does not take the filter.
pub(super) fn refuse() -> Result<bool, String> {
    let Ok(processor) = std::env::consts::ARCH.try_into() else { return Ok(false) };
    let mut rules: BTreeMap<_, _> = refused().map(|call| (call, Vec::new())).collect();
    rules.insert(SYS_clone, namespaces()?);
    // What clone3 is asked for lies in memory, where no filter sees it; without it, threads are started by clone.
    let clone3 = BTreeMap::from([(SYS_clone3, Vec::new())]);
    for (rules, errno) in [(rules, EPERM), (clone3, ENOSYS)] {
        let refused = SeccompAction::Errno(errno.unsigned_abs());
        let filter =
            SeccompFilter::new(rules, SeccompAction::Allow, refused, processor).map_err(|error| error.to_string())?;
        let program: BpfProgram = filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
        seccompiler::apply_filter(&program).map_err(|error| error.to_string())?;
    }
    Ok(true)
}

/// Calls of clone(2) that make a namespace, by its flags.
fn namespaces() -> Result<Vec<SeccompRule>, String> {
    let flags = [CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWCGROUP];
    let rule = |flag: c_int| {
        let flag = u64::from(flag.unsigned_abs());
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![condition])
    };
    flags.into_iter().map(rule).collect::<Result<_, _>>().map_err(|error: seccompiler::BackendError| error.to_string())
}

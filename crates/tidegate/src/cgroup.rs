//! The limits that control groups set to this process.

use std::path::Path;

/// The least memory limit, in bytes, of the cgroups that this process is in; `None` without one.
pub fn memory_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    limit_of(&groups, read)
}

/// Reads `/proc/self/cgroup`. Version 2 has one line, `0::/path`, and each directory up to the root has a limit.
/// Version 1 has a line for each controller.
fn limit_of(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let root = Path::new(root);
        // In a container the path may name a directory that is not visible here. The file of the root then
        // counts.
        let dirs = Path::new(path).ancestors().map(|p| root.join(p));
        dirs.filter_map(|d| read(&d.join(file))?.trim().parse::<u64>().ok()).min()
    });
    // In version 1, a number beyond all memory means that there is no limit.
    limits.min().filter(|&n| n < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_memory_limit_counts() {
        let read = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_string()),
            "/sys/fs/cgroup/a/memory.max" => Some("268435456\n".to_string()),
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" => Some("134217728\n".to_string()),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes" => Some("9223372036854771712\n".to_string()),
            _ => None,
        };
        assert_eq!(limit_of("0::/a/b\n", read), Some(256 << 20));
        assert_eq!(limit_of("4:cpu:/x\n7:memory:/x\n0::/\n", read), Some(128 << 20));
        assert_eq!(limit_of("7:memory:/\n", read), None);
        assert_eq!(limit_of("0::/\n", read), None);
    }
}

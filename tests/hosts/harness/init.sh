# The last steps before systemd, inside the host's new namespaces. Run by boot.py as
#   bash -eu init.sh NAME LOWERDIRS STATE unified|hybrid udev|noudev [SRC:DST]...
# Everything mounted here lives in a private mount namespace: when the host dies, nothing is left to unmount.
name=$1 lower=$2 state=$3 cgroup=$4 udev=$5
shift 5
hostname "$name"
root=$state/root

# "volatile" skips fsync; a host that was killed leaves this marker, and the next mount would refuse.
rm -rf "$state/work/work/incompat"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$state/upper,workdir=$state/work,volatile" "$root"
cd "$root"

echo "$name" > etc/hostname
cp "$state/hosts" etc/hosts
printf '%s' "$name" | md5sum | cut -c1-32 > etc/machine-id
mkdir -p var/log/journal mnt
mount --bind "$state/journal" var/log/journal

mount -t proc -o nosuid,nodev,noexec proc proc
# Sysctls are the machine's, except net.*, which belong to the host's own network namespace.
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro proc/sys
# A boot id of its own for each boot: the journal tells boots apart by it.
cat /proc/sys/kernel/random/uuid > "$state/boot_id"
chmod 444 "$state/boot_id"
mount --bind "$state/boot_id" proc/sys/kernel/random/boot_id

mount -t sysfs -o nosuid,nodev,noexec sysfs sys
if [ "$udev" = noudev ]; then # with a read-only /sys systemd leaves udevd out by a condition of its own
    mount --bind sys sys
    mount -o remount,bind,ro sys
fi
if [ "$cgroup" = hybrid ]; then
    mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
    for mounted in $(awk '$3 == "cgroup" { print $2 }' /proc/self/mounts | grep '^/sys/fs/cgroup/' | sort -u); do
        controllers=${mounted##*/}
        options=$controllers
        [ "$controllers" != systemd ] || options=none,name=systemd
        mkdir "sys/fs/cgroup/$controllers"
        mount -t cgroup -o "$options" cgroup "sys/fs/cgroup/$controllers"
    done
    mkdir sys/fs/cgroup/unified
    mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
else
    mount -t cgroup2 cgroup2 sys/fs/cgroup
fi

# Never the machine's devtmpfs: udevd would change it.
mount -t tmpfs -o mode=755,nosuid tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
for node in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "dev/${node%:*}" c 1 "${node#*:}"; done
mknod -m 666 dev/tty c 5 0
ln -s /proc/self/fd dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${stream%:*}" "dev/${stream#*:}"; done

mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs tmp
mkdir -p run/host/notify
mount --bind "$state/notify" run/host/notify
for bind in "$@"; do
    source=${bind%%:*} target=${bind#*:}
    if [ -d "$source" ]; then mkdir -p ".$target"; else
        mkdir -p ".${target%/*}"
        touch ".$target"
    fi
    mount --rbind "$source" ".$target"
done

pivot_root . mnt
umount -l /mnt
# Shared, as systemd would have made it on a machine: else LoadCredential= does not reach the units.
mount --make-rshared /
exec env -i container=testhost NOTIFY_SOCKET=/run/host/notify/socket LANG=C.UTF-8 \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/lib/systemd/systemd --system

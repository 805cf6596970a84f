# A volume of four disks as a block device. After a power cut nothing knows of it but its disks.
until [ -b /dev/vdd ]; do sleep 0.1; done
headpond describe hv0 ||
  headpond create hv0 --raid 5 --zeroed /dev/vda /dev/vdb /dev/vdc --cache /dev/vdd
headpond export add hv0 ublk
headpond serve hv0 &
until [ -b /dev/headpond/hv0 ]; do sleep 0.1; done

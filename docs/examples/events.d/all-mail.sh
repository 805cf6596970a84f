#!/bin/sh
# Mails warnings and errors of Headpond volumes. To use it:
#   install -D -o root -g root -m 0755 all-mail.sh /etc/headpond/events.d/all-mail.sh
# The daemon sets the variables HEADPOND_*: docs/operating.md.

MAIL_TO=root

[ "$HEADPOND_SEVERITY" != info ] || exit 0

# The unit of the daemon may not change users, as some mail programs must: systemd-run has the
# manager start the program outside of it. On machines without systemd it is started as it is.
send() {
    if [ -d /run/systemd/system ]; then
        systemd-run --quiet --collect --pipe --wait /usr/sbin/sendmail -oi -- "$MAIL_TO"
    else
        /usr/sbin/sendmail -oi -- "$MAIL_TO"
    fi
}

# A header is a line, whatever a device is called.
subject=$(printf '%s' "$HEADPOND_VOLUME: $HEADPOND_TEXT" | tr -d '\r\n' | cut -c 1-150)

send <<END
To: $MAIL_TO
Subject: [headpond $HEADPOND_SEVERITY] $subject

$HEADPOND_TEXT

volume:   $HEADPOND_VOLUME
event:    $HEADPOND_EVENT ($HEADPOND_SEVERITY), number $HEADPOND_SEQUENCE
device:   ${HEADPOND_DEVICE:--}
member:   ${HEADPOND_MEMBER:--}
time:     $HEADPOND_TIME
machine:  $(uname -n)

headpond status $HEADPOND_VOLUME
headpond events $HEADPOND_VOLUME
END

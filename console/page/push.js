// The service worker. It shows notifications and opens what they are about, nothing else.
self.addEventListener('push', event => {
  let n = {};
  try { n = event.data.json(); } catch { /* a message without content */ }
  const titles = {ask: 'Needs attention', done: 'Done', problem: 'A problem'};
  event.waitUntil(self.registration.showNotification(`${titles[n.event] ?? 'Parley'}: ${n.title ?? ''}`, {body: n.body ?? '', tag: n.session, icon: 'icon.svg', data: n.session}));
});

self.addEventListener('notificationclick', event => {
  event.notification.close();
  const url = new URL(event.notification.data ? '#/s/' + event.notification.data : '#/', self.registration.scope).href;
  event.waitUntil((async () => {
    const open = await self.clients.matchAll({type: 'window', includeUncontrolled: true});
    if (!open.length) return self.clients.openWindow(url);
    open[0].postMessage(url);
    return open[0].focus();
  })());
});
